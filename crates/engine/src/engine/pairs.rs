//! Which logs of sets go with which sweeps over them (Garcia-Molina and Salem, System M, 1988, section 4).

use super::Strategy;
use structures::set::Logging;

impl Strategy {
    /// Whether a log of sets can be repeated over the backups of this strategy.
    ///
    /// # Errors
    /// Words that say why not, and what would do.
    ///
    /// ```
    /// use entresol_engine::checkpoint::Strategy;
    /// use entresol_engine::set::Logging;
    ///
    /// assert!(Strategy::ALL.iter().all(|strategy| strategy.check(Logging::Values).is_ok()));
    /// let why = Strategy::ActionBlackWhite.check(Logging::Procedures).unwrap_err();
    /// assert!(why.contains("whole transactions"));
    /// ```
    pub fn check(self, logging: Logging) -> Result<(), &'static str> {
        match (logging, self) {
            (Logging::Actions, Strategy::Fuzzy) => Err(
                "an action has to be repeated exactly once, and a fuzzy backup does not tell which it holds; sweep by acbw, \
                 tcbw, accou, tccou or calc, or log values",
            ),
            (Logging::Procedures, Strategy::Fuzzy | Strategy::ActionBlackWhite | Strategy::ActionCopyOnUpdate) => Err(
                "a procedure has to find the state that it had found, so the backup must hold whole transactions; sweep by \
                 tcbw, tccou or calc, or log values or actions",
            ),
            _ => Ok(()),
        }
    }
}
