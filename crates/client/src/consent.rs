//! Consent of the applications of this host to joint contracts of other hosts (QualMan, Figure 8).
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use qfabric_client::{Client, ConsentHandle};
//!
//! # fn main() -> Result<(), qfabric_client::ClientError> {
//! let answers = ConsentHandle::begin(&Client::connect()?, "player")?;
//! loop {
//!     // Half a CPU is enough for anyone.
//!     answers.answer_next(Duration::from_secs(30), |question| question.resources.cpu.as_f64() <= 0.5)?;
//! }
//! # }
//! ```

use std::time::Duration;

use qfabric_shm::Process;
use qfabric_types::api::contracts::{ConsentAnswer, ConsentInfo, ConsentPolicy, ConsentQuestion, ConsentRequest};

use crate::client::Client;
use crate::error::ClientError;
use crate::joint::named;

impl Client {
    /// Answers for an application of this host from now on. With a process, the answers end with it; without, they end
    /// with [`Client::end_consent`] or the daemon. Fails with [`ClientError::Refused`] if another user answers for it.
    pub fn consent(&self, application: &str, request: ConsentRequest) -> Result<ConsentInfo, ClientError> {
        self.call("PUT", &path(application)?, Some(&request)).map_err(|error| self.older(error))
    }

    /// The applications for which the user answers; for root, those of all users.
    pub fn consents(&self) -> Result<Vec<ConsentInfo>, ClientError> {
        self.get("/v1/consents").map_err(|error| self.older(error))
    }

    /// Answers for an application no more. Contracts that wait for the answer are refused.
    pub fn end_consent(&self, application: &str) -> Result<(), ClientError> {
        self.exchange("DELETE", &path(application)?, None).map(drop).map_err(|error| self.older(error))
    }
}

fn path(application: &str) -> Result<String, ClientError> {
    Ok(format!("/v1/consents/{}", named("the application", application)?))
}

/// The calling process answers for an application until this value is dropped.
#[derive(Debug)]
pub struct ConsentHandle {
    client: Client,
    application: String,
    /// In a child of a fork the parent goes on to answer.
    by: Process,
}

impl ConsentHandle {
    /// Begins to answer for an application. The answers end with the calling process, too.
    pub fn begin(client: &Client, application: &str) -> Result<ConsentHandle, ClientError> {
        let by = Process::current().map_err(ClientError::unnumbered)?;
        let request = ConsentRequest { policy: ConsentPolicy::Ask, pid: Some(std::process::id() as i32) };
        client.consent(application, request)?;
        Ok(ConsentHandle { client: client.clone(), application: application.to_owned(), by })
    }

    /// Waits for the next question, for at most this time and 30 s. `None`: there was none. The answer must come within
    /// [`ConsentQuestion::left_ns`].
    pub fn next(&self, wait: Duration) -> Result<Option<ConsentQuestion>, ClientError> {
        self.client.wait(&format!("{}/question", path(&self.application)?), wait)
    }

    /// Answers a question. Fails with [`ClientError::Refused`] if its time is over: then the contract was refused.
    pub fn answer(&self, question: &ConsentQuestion, accept: bool) -> Result<(), ClientError> {
        self.answer_number(question.number, accept)
    }

    /// Like [`ConsentHandle::answer`], for [`ConsentQuestion::number`].
    pub fn answer_number(&self, number: u64, accept: bool) -> Result<(), ClientError> {
        let path = format!("{}/questions/{number}", path(&self.application)?);
        let body = serde_json::to_vec(&ConsentAnswer { accept }).expect("the API's bodies are plain values");
        self.client.exchange("POST", &path, Some(body)).map(drop)
    }

    /// Waits for the next question and answers it as `decide` says. Returns whether there was one; one that was answered
    /// too late counts, too.
    pub fn answer_next(
        &self,
        wait: Duration,
        decide: impl FnOnce(&ConsentQuestion) -> bool,
    ) -> Result<bool, ClientError> {
        let Some(question) = self.next(wait)? else { return Ok(false) };
        match self.answer(&question, decide(&question)) {
            Err(ClientError::Refused(problem)) if problem.code == "no_such_question" => Ok(true),
            answered => answered.map(|()| true),
        }
    }
}

impl Drop for ConsentHandle {
    fn drop(&mut self) {
        if self.by.is_current() {
            // If it fails, the answers end with this process.
            let _ = self.client.end_consent(&self.application);
        }
    }
}
