//! Registration of the kinds of endpoints.
//!
//! Each row in [`super`] names a kind and its specification, which has a field `common`. The macro makes
//! [`super::EndpointSpec`] from the rows, and other code knows the kinds through that enum alone.
//!
//! Source: ARCHITECTURE.md "To add X, edit these files".

/// Makes the enum of all specifications from one row for each kind.
macro_rules! endpoint_kinds {
    ($($(#[$doc:meta])* $kind:ident($spec:ty),)*) => {
        /// Specification of an endpoint of any kind.
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
            /// Names of all kinds, as `weft endpoint` has them.
            pub const KINDS: &[&str] = &[$(<$spec as spec::Spec>::KIND),*];

            /// Name of this specification's kind.
            #[must_use]
            pub const fn kind(&self) -> &'static str {
                match self {
                    $(Self::$kind(_) => <$spec as spec::Spec>::KIND,)*
                }
            }

            /// True for exactly one link; false if each given port is one.
            #[must_use]
            pub const fn has_one_link(&self) -> bool {
                match self {
                    $(Self::$kind(_) => <$spec as spec::Spec>::ONE_LINK,)*
                }
            }

            /// The settings that every kind has.
            #[must_use]
            pub fn common(&self) -> &spec::Common {
                match self {
                    $(Self::$kind(spec) => &spec.common,)*
                }
            }

            /// Like [`Self::common`], to change them.
            pub fn common_mut(&mut self) -> &mut spec::Common {
                match self {
                    $(Self::$kind(spec) => &mut spec.common,)*
                }
            }

            /// Makes the endpoint. `macs` are the addresses of its ports in order.
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

            /// Advice for the person who starts it, if there is any.
            #[must_use]
            pub fn note(&self) -> Option<String> {
                match self {
                    $(Self::$kind(spec) => spec::Spec::note(spec),)*
                }
            }

            /// Merges the TOML in `text` with these settings, which take precedence.
            ///
            /// # Errors
            /// Invalid TOML, an unknown field, or a value of the wrong type.
            pub fn over(&self, text: &str) -> Result<Self, spec::SpecError> {
                Ok(match self {
                    $(Self::$kind(spec) => Self::$kind(spec::over(text, spec)?),)*
                })
            }

            /// The place of a field's value in the TOML of `text`, unless these settings take precedence.
            #[must_use]
            pub fn place(&self, text: &str, field: &str) -> Option<weft_toml::Place> {
                match self {
                    $(Self::$kind(spec) => spec::place(text, spec, field),)*
                }
            }

            /// The TOML from which [`Self::over`] makes the same settings.
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
