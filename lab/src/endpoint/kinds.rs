//! The registration of kinds of endpoints.
//!
//! A row for each kind, in [`super`], whose specification has a field `common` → [`super::EndpointSpec`], by which all others know of it.
//!
//! Source: ARCHITECTURE.md "To add X, edit these files".

/// Makes an enum of the specifications of all kinds, a row each.
macro_rules! endpoint_kinds {
    ($($(#[$doc:meta])* $kind:ident($spec:ty),)*) => {
        /// What an endpoint of any kind is to be.
        #[derive(Clone, Debug)]
        #[cfg_attr(feature = "clap", derive(clap::Subcommand))]
        pub enum EndpointSpec {
            $($(#[$doc])* $kind($spec),)*
        }

        $(impl From<$spec> for EndpointSpec {
            fn from(spec: $spec) -> Self {
                Self::$kind(spec)
            }
        })*

        impl EndpointSpec {
            /// Names of all kinds.
            pub const KINDS: &[&str] = &[$(<$spec as spec::Spec>::KIND),*];

            /// The name of its kind.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => <$spec as spec::Spec>::KIND,)*
                }
            }

            /// Whether it has one link; without, as many as ports are given.
            #[must_use]
            pub const fn has_one_link(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$spec as spec::Spec>::ONE_LINK,)*
                }
            }

            /// The settings that all endpoints have.
            #[must_use]
            pub fn common(&self) -> &spec::Common {
                match self {
                    $(Self::$kind(spec) => &spec.common,)*
                }
            }

            /// As [`Self::common`].
            pub fn common_mut(&mut self) -> &mut spec::Common {
                match self {
                    $(Self::$kind(spec) => &mut spec.common,)*
                }
            }

            /// Makes the endpoint, whose ports have `macs`, in their order.
            ///
            /// # Errors
            /// See [`spec::SpecError`].
            pub fn endpoint(
                &self,
                macs: &[weft_parsers::MacAddr],
            ) -> Result<Box<dyn Endpoint>, spec::SpecError> {
                match self {
                    $(Self::$kind(spec) => spec::Spec::endpoint(spec, macs),)*
                }
            }

            /// What whoever starts it should know, if there is something.
            #[must_use]
            pub fn note(&self) -> Option<String> {
                match self {
                    $(Self::$kind(spec) => spec::Spec::note(spec),)*
                }
            }

            /// These settings over those that the TOML in `text` says.
            ///
            /// # Errors
            /// No TOML, a field that there is not, a value of another kind.
            pub fn over(&self, text: &str) -> Result<Self, spec::SpecError> {
                Ok(match self {
                    $(Self::$kind(spec) => Self::$kind(spec::over(text, spec)?),)*
                })
            }

            /// The TOML that [`Self::over`] reads it from.
            #[must_use]
            pub fn to_toml(&self) -> String {
                match self {
                    $(Self::$kind(spec) => spec::to_toml(spec),)*
                }
            }
        }
    };
}

pub(super) use endpoint_kinds;
