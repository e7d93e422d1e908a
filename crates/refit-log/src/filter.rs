//! Which events are written to standard error.

use std::str::FromStr;

use tracing::Metadata;
use tracing_subscriber::filter::{LevelFilter, Targets};

use crate::error::LogError;

/// Levels by module, e.g. `warn,refit_migrate=debug,refit_tracer::supervisor=trace`: the longest
/// module that matches decides.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl Filter {
    /// Parses a filter.
    ///
    /// # Errors
    /// [`LogError::Filter`].
    pub fn parse(text: &str) -> Result<Self, LogError> {
        let wrong = || LogError::Filter(text.to_owned());
        if text.trim().is_empty() {
            return Err(wrong());
        }
        Targets::from_str(text).map(Self).map_err(|_| wrong())
    }

    pub(crate) fn permits(&self, metadata: &Metadata<'_>) -> bool {
        self.0.would_enable(metadata.target(), metadata.level())
    }

    /// The most verbose level that any module has.
    pub(crate) fn most(&self) -> LevelFilter {
        let all = self.0.iter().map(|(_, level)| level);
        all.chain(self.0.default_level()).max().unwrap_or(LevelFilter::OFF)
    }
}

impl Default for Filter {
    /// Nothing: what a user has to know is said anyway ([`crate::say`]).
    fn default() -> Self {
        Self(Targets::new().with_default(LevelFilter::OFF))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_filter_is_refused_with_an_example() {
        for text in ["", " ", "refit_migrate=loud", "=debug=", "a=b=c"] {
            let error = Filter::parse(text).expect_err(text).to_string();
            assert!(error.contains("refit_migrate=debug"), "{error}");
        }
    }

    #[test]
    fn the_most_verbose_level_of_all_modules_is_asked_for() {
        let most = |text| Filter::parse(text).expect(text).most();
        assert_eq!(most("warn,refit_migrate=trace"), LevelFilter::TRACE);
        assert_eq!(most("info"), LevelFilter::INFO);
        assert_eq!(most("off"), LevelFilter::OFF);
    }
}
