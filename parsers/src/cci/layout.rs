//! Macros that make a struct of a layout, offset by offset as docs/spec/wire-formats.md has it.
//!
//! `record!` is a value of fixed size, `message!` a fixed head, a list that the head counts and
//! perhaps a fixed tail, `codes!` an enum over a few bits. Offsets are in bytes. A layout whose
//! fields overlap fails the build.

/// `record! { struct NAME: LENGTH { OFFSET => FIELD: TYPE, } }`; bytes that no field takes are reserved.
macro_rules! record {
    ($(#[$doc:meta])* struct $name:ident: $len:literal {
        $($(#[$field_doc:meta])* $at:literal => $field:ident: $ty:ty,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
        }

        impl $crate::cci::wire::Wire for $name {
            const LEN: usize = $crate::cci::layout::checked(
                $len,
                &[$(($at, <$ty as $crate::cci::wire::Wire>::LEN)),*],
                None,
            );

            fn read(bytes: &[u8]) -> Result<Self, $crate::ParseError> {
                Ok(Self { $($field: $crate::cci::wire::get(bytes, $at)?,)* })
            }

            fn write(&self, bytes: &mut [u8]) {
                $($crate::cci::wire::set(bytes, $at, &self.$field);)*
            }
        }
    };
}

/// `message! { struct NAME: HEAD { OFFSET => FIELD: TYPE, } OFFSET as COUNT => LIST: [TYPE] }`, and
/// `then FIELD: TYPE` for a record behind the list. The count is not a field of the struct, as the
/// list knows its length.
macro_rules! message {
    ($(#[$doc:meta])* struct $name:ident: $len:literal {
        $($(#[$field_doc:meta])* $at:literal => $field:ident: $ty:ty,)*
    }
    $(#[$list_doc:meta])* $count_at:literal as $count:ty => $list:ident: [$item:ty]
    $(then $(#[$tail_doc:meta])* $tail:ident: $tail_ty:ty)?) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name<'a> {
            $($(#[$field_doc])* pub $field: $ty,)*
            $(#[$list_doc])* pub $list: $crate::cci::wire::List<'a, $item>,
            $($(#[$tail_doc])* pub $tail: $tail_ty,)?
        }

        impl $name<'_> {
            const HEAD: usize = $crate::cci::layout::checked(
                $len,
                &[$(($at, <$ty as $crate::cci::wire::Wire>::LEN)),*],
                Some(($count_at, size_of::<$count>())),
            );
            const TAIL: usize = 0 $(+ <$tail_ty as $crate::cci::wire::Wire>::LEN)?;
        }

        impl<'a> $crate::cci::wire::Payload<'a> for $name<'a> {
            fn parse(payload: &'a [u8]) -> Result<Self, $crate::ParseError> {
                use $crate::cci::wire::{List, get, split_list};
                let (rest, _tail) = split_list(payload, Self::HEAD, Self::TAIL)?;
                let count: $count = get(payload, $count_at)?;
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                Ok(Self {
                    $list: List::parse(rest, Self::HEAD + Self::TAIL, count)?,
                    $($field: get(payload, $at)?,)*
                    $($tail: get::<$tail_ty>(_tail, 0)?,)?
                })
            }

            fn emit(&self, out: &mut [u8]) -> Option<usize> {
                use $crate::cci::wire::{room, set};
                let head = room(out, Self::HEAD)?;
                $(set(head, $at, &self.$field);)*
                // a list longer than its count can say is refused; the count is never cut
                set(head, $count_at, &<$count>::try_from(self.$list.len()).ok()?);
                let end = self.$list.emit(out, Self::HEAD)?;
                let _tail = room(out.get_mut(end..)?, Self::TAIL)?;
                $(set(_tail, 0, &self.$tail);)?
                end.checked_add(Self::TAIL)
            }
        }
    };
}

/// `codes! { enum NAME: FIELD, MASK { CODE => VARIANT, } }`; a code without a variant is refused.
macro_rules! codes {
    ($(#[$doc:meta])* enum $name:ident: $field:ident, $mask:literal {
        $($(#[$code_doc:meta])* $code:literal => $variant:ident,)*
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$code_doc])* $variant = $code,)*
        }

        impl $name {
            /// Value of `code`; `None` when it is reserved.
            #[must_use]
            pub const fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl $crate::cci::wire::Wire for $name {
            const LEN: usize = 1;

            fn read(bytes: &[u8]) -> Result<Self, $crate::ParseError> {
                use $crate::cci::wire::{get, refused};
                let code = get::<u8>(bytes, 0)? & $mask;
                Self::from_code(code)
                    .ok_or(refused($crate::Field::$field, u16::from(code)))
            }

            fn write(&self, bytes: &mut [u8]) {
                $crate::cci::wire::set(bytes, 0, &(*self as u8));
            }
        }
    };
}

/// Checks, when the crate is built, that `fields` (offset and length each) stand in order within
/// `len`, and that neither they nor `count` overlap. Returns `len`.
pub(super) const fn checked(
    len: usize,
    fields: &[(usize, usize)],
    count: Option<(usize, usize)>,
) -> usize {
    let mut end = 0;
    let mut rest = fields;
    while let [(at, bytes), behind @ ..] = rest {
        assert!(*at >= end, "fields stand in order, none upon another");
        end = *at + *bytes;
        if let Some((count_at, count_len)) = count {
            assert!(end <= count_at || *at >= count_at + count_len, "none upon the count");
        }
        rest = behind;
    }
    if let Some((at, bytes)) = count {
        assert!(at + bytes <= len, "the count lies within");
    }
    assert!(end <= len, "the last field ends within");
    len
}

pub(super) use {codes, message, record};
