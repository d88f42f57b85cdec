//! Opcodes of CXL messages: one byte that holds class and opcode, with the standard's names.

/// Makes an enum of opcodes: each with its byte and its name in the standard.
macro_rules! message_ops {
    ($(#[$top:meta])* $Ops:ident { $($(#[$doc:meta])* $name:ident = $byte:literal, $text:literal;)* }) => {
        $(#[$top])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $Ops {
            $($(#[$doc])* $name = $byte,)*
        }

        impl $Ops {
            /// All of them, by number.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Reads class and opcode.
            #[inline]
            #[must_use]
            pub const fn decode(byte: u8) -> Option<Self> {
                match byte {
                    $($byte => Some(Self::$name),)*
                    _ => None,
                }
            }

            /// Its name, as the standard spells it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

pub(crate) use message_ops;
