//! Bandog for Python.
//!
//! Converts, gives the GIL up, calls the driver, maps errors. What a lock is, the core decides.

mod aio;
mod bell;
mod block;
mod callbacks;
mod client;
mod convert;
mod dispatcher;
mod errors;
mod events;
mod hold;
mod home;
mod line;
mod lock;
mod owner;
mod poke;
mod port;
mod shared;
mod step;
mod wait;
mod warnings;
mod wish;

/// The native part of `bandog`: import from `bandog` instead.
#[pyo3::pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use crate::client::{Client, connect};
    #[pymodule_export]
    use crate::convert::_check_spans;
    #[pymodule_export]
    use crate::events::{Event, Events};
    #[pymodule_export]
    use crate::hold::Hold;
    #[pymodule_export]
    use crate::lock::Lock;
    #[pymodule_export]
    use crate::owner::_owner_ended;
    #[pymodule_export]
    use crate::shared::_exit;

    /// The version of this package.
    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
