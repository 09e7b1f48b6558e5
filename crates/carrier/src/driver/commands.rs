//! Carries out what the application asks for.

use std::net::SocketAddr;

use qfabric_metp::EndReason;

use super::{Attachment, Driver, now};
use crate::Error;
use crate::handover::{Command, Reply};
use crate::hello::{Answer, Hello};
use crate::quic;

impl Driver {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Mode(mode) => self.session.set_mode(now(), mode),
            Command::Rate(rate) => {
                self.wanted_rate = rate;
                self.follow_path();
            }
            Command::TpduSize(bytes, reply) => {
                let refused = |error: qfabric_metp::InvalidConfig| Error::Refused(Box::new(error.problem()));
                answer(&reply, self.session.set_tpdu_size(now(), bytes).map_err(refused));
            }
            Command::Grant(grant) => {
                self.grants.replace(grant);
                self.apply_grant();
            }
            Command::Record(recording, reply) => {
                self.recording = Some(recording);
                self.follow_path();
                answer(&reply, Ok(()));
            }
            Command::Attach { local, peer, reply } => self.connect(local, peer, reply),
            Command::Detach(carrier, reply) => {
                let done = self.detach(carrier, "detached");
                answer(&reply, done);
            }
            Command::Select { send, receive, reply } => {
                let done = self.select(send, receive);
                answer(&reply, done);
            }
            Command::Rebind { carrier, local, reply } => {
                let done = self.rebind(carrier, local);
                answer(&reply, done);
            }
            Command::Statistics(reply) => {
                let statistics = self.statistics();
                answer(&reply, Ok(statistics));
            }
            Command::Finish => self.is_finishing = true,
            Command::Close => {
                self.session.close(now());
                self.ended.get_or_insert((EndReason::Closed, now()));
            }
        }
    }

    /// What was submitted before `finish` is sent first.
    pub(super) fn finish_when_drained(&mut self) {
        if self.is_finishing && self.handover.is_drained() {
            self.is_finishing = false;
            self.session.finish(now());
        }
    }

    fn rebind(&mut self, carrier: u32, local: SocketAddr) -> Result<(), Error> {
        let missing = || Error::Option { option: "carrier", value: carrier.to_string(), allowed: "attached carriers" };
        self.carriers.get_mut(&carrier).ok_or_else(missing)?.carrier.rebind(local)?;
        self.watch_grant();
        self.follow_path();
        Ok(())
    }

    /// Connects once more, in a task of its own; the connection arrives as an attachment.
    fn connect(&mut self, local: Option<SocketAddr>, peer: SocketAddr, reply: Reply<u32>) {
        let Some(connector) = self.connector.clone() else {
            let allowed = "the side that opened the connection";
            return answer(&reply, Err(Error::Option { option: "attach", value: peer.to_string(), allowed }));
        };
        let attach = self.attach.clone();
        tokio::task::spawn_local(async move {
            let hello = Hello::Attach { session: connector.session };
            let greeted = quic::connect(&connector.secured, local, peer, Some(&connector.expected), &hello).await;
            let path = greeted.and_then(|greeted| match greeted.answer {
                Answer::Attached => Ok(greeted.path),
                _ => Err(Error::Handshake { address: peer, why: "it answered another question".to_owned() }),
            });
            // The session may have ended meanwhile.
            let _ = attach.send(Attachment { path, reply: Some(reply) }).await;
        });
    }
}

fn answer<T>(reply: &Reply<T>, result: Result<T, Error>) {
    // The caller's time may be over.
    let _ = reply.try_send(result);
}
