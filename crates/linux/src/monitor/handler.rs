//! Active monitors in the kernel: a handler in E-code counts events when they happen, and a look reads the count.
//!
//! ```c
//! attr.total++;     // at tcp.accept: connections since the handler was installed
//! ```
//! Everything that a service of the kernel reports can be counted, such as the bytes of one port or the wake-ups of one
//! process. Each event costs one call of the handler: 45 ns plus the time of its text.

use std::collections::BTreeMap;

use qfabric_ecode::{Environment, Limits, compile};

use crate::ecalls::{DownMemory, Install, InstallError, Installed, Kernel, Step};

/// A total that a handler counts in the kernel. Dropping it removes the handler.
#[derive(Debug)]
pub struct Handler {
    installed: Installed,
    down: DownMemory,
    word: usize,
}

/// Why a monitor could not be installed.
#[derive(Debug, thiserror::Error)]
pub enum HandlerError {
    /// The text is not valid E-code for the service.
    #[error("{0}")]
    Text(String),
    /// The text does not use the attribute that is to be read.
    #[error("the text has no attribute `{0}`; count in attr.{0}, which the monitor reads")]
    NoAttribute(String),
    #[error(transparent)]
    Install(#[from] InstallError),
    /// The memory for the handler's attributes could not be created.
    #[error("memory for the handler's attributes: {0}")]
    Memory(std::io::Error),
}

impl Handler {
    /// Installs a text at a service. The monitor reads the text's attribute with the name `attribute`, which starts at
    /// zero. The other attributes of the text are its parameters.
    pub fn install(
        kernel: &Kernel,
        service: &str,
        options: &BTreeMap<String, String>,
        only_pid: Option<i32>,
        text: &str,
        attribute: &str,
    ) -> Result<Handler, HandlerError> {
        let input = kernel.service(service).map(|service| service.format.clone());
        let environment = Environment { input, ..Environment::default() };
        let program = compile(text, &environment).map_err(|errors| HandlerError::Text(errors.to_string()))?;
        let word = program.attributes.iter().position(|name| name == attribute);
        let word = word.ok_or_else(|| HandlerError::NoAttribute(attribute.to_owned()))?;
        let down = DownMemory::new().map_err(HandlerError::Memory)?;
        let (steps, limits) = ([Step::Handler(&program)], Limits::default());
        let request = Install {
            service,
            options,
            only_pid,
            steps: &steps,
            limits,
            down: Some(&down),
            deadline: None,
            fault_passes: true,
            measured: false,
        };
        Ok(Handler { installed: kernel.install(&request)?, down, word })
    }

    /// The present count.
    pub fn total(&self) -> i64 {
        self.down.down().attribute(self.word)
    }

    /// The installation, for its counters.
    pub fn installed(&self) -> &Installed {
        &self.installed
    }
}
