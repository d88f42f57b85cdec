//! Text of an error together with its causes, in one line.

use std::error::Error;

/// The message of `error` and of each of its causes, the nearest first, with `: ` between them.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// The causes of `error`, the nearest first.
pub fn causes<'a>(error: &'a dyn Error) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause| (*cause).source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt;

    #[derive(Debug)]
    struct Layer(&'static str, Option<Box<Layer>>);

    impl fmt::Display for Layer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for Layer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|inner| inner as _)
        }
    }

    #[test]
    fn all_causes_are_told_the_nearest_first() {
        let inner = Layer("no room", None);
        assert_eq!(with_causes(&inner), "no room");
        let middle = Layer("write x", Some(Box::new(inner)));
        let outer = Layer("store", Some(Box::new(middle)));
        assert_eq!(with_causes(&outer), "store: write x: no room");
        assert_eq!(causes(&outer).count(), 2);
    }
}
