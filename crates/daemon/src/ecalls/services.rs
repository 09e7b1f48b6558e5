//! Services: those of the kernel, those of the daemon, and those that processes register.

use qfabric_types::api::Problem;
use qfabric_types::api::ecalls::{
    HandlerInfo, HandlerRequest, OptionInfo, Origin, ServiceId, ServiceInfo, ServiceRequest,
};
use qfabric_types::api::net::{OFFER_FORMAT, OFFER_SERVICE};
use qfabric_types::format::Format;
use qfabric_types::text::is_plain;

use super::compiled::Compiled;
use super::registry::{Handler, Service, ServiceOwner, Snapshot};
use super::{Ecalls, Remains, misses, problems};
use crate::auth::Peer;

/// Longest description of a service, in characters.
const ABOUT: usize = 400;

impl Service {
    pub(super) fn new(name: &str, about: &str, origin: Origin, hook: &str, format: Format) -> Service {
        let declaration = qfabric_ecode::format_text(&format);
        let concerns_process = format.field("pid").is_some();
        Service {
            name: name.to_owned(),
            about: about.to_owned(),
            origin,
            hook: hook.to_owned(),
            format,
            declaration,
            options: Vec::new(),
            concerns_process,
            unavailable: None,
            max_instructions: 0,
            owner: None,
            inputs: None,
            subscriptions: Vec::new(),
            groups: Default::default(),
            raised: 0,
            cpu: 0,
        }
    }

    fn of_kernel(service: &qfabric_linux::ecalls::Service) -> Service {
        let fresh = Service::new(service.name, service.about, Origin::Kernel, &service.hook, service.format.clone());
        let option = |option: &qfabric_linux::ecalls::OptionSpec| OptionInfo {
            name: option.name.to_owned(),
            about: option.about.to_owned(),
            required: option.required,
        };
        Service {
            options: service.options.iter().map(option).collect(),
            concerns_process: service.concerns_process,
            unavailable: service.unavailable.clone(),
            ..fresh
        }
    }

    /// The text of the service's file.
    fn text(&self) -> String {
        format!("// {}: {}\n// raised by: {}\n{}\n", self.name, self.about, self.hook, self.declaration.trim_end())
    }
}

impl Ecalls {
    pub(super) fn add_own_services(&self) {
        let Ok(format) = event_format(misses::FORMAT) else { return };
        let about = "a job of an application under contract ended after its deadline";
        let service = Service::new(misses::SERVICE, about, Origin::Daemon, "the control thread", format);
        self.add(service);
        let Ok(format) = event_format(OFFER_FORMAT) else { return };
        let about = "a link has more room for a partly granted stream of the process";
        self.add(Service::new(OFFER_SERVICE, about, Origin::Daemon, "the thread of links", format));
    }

    pub(super) fn add_kernel_services(&self, services: &[qfabric_linux::ecalls::Service]) {
        for service in services {
            self.add(Service::of_kernel(service));
        }
    }

    /// Adds a service of the kernel or the daemon. A name that exists keeps its owner; these services are added
    /// before others.
    fn add(&self, mut service: Service) {
        (service.max_instructions, _) = self.config().instructions_at(&service.name, service.origin);
        let (name, text) = (service.name.clone(), service.text());
        if self.registry().add_service(service).is_ok() {
            self.files.show(&name, &text);
        }
    }

    pub(crate) fn services(&self) -> Vec<ServiceInfo> {
        if let Err(unsupported) = self.kernel() {
            tracing::debug!(%unsupported, "the kernel's services are not available");
        }
        let snapshots: Vec<_> = self.registry().services.iter().map(|(id, one)| one.snapshot(*id)).collect();
        let mut list: Vec<_> = snapshots.into_iter().map(Snapshot::info).collect();
        list.sort_by(|a, b| a.name.cmp(&b.name));
        list
    }

    /// One service. If it may be a service of the kernel and these are not available, the refusal gives the reason.
    pub(crate) fn service(&self, name: &str) -> Result<ServiceInfo, Problem> {
        let kernel = self.kernel().err();
        let found = self.registry().service(name).map(|(id, service)| service.snapshot(id));
        match (found, kernel) {
            (Ok(snapshot), _) => Ok(snapshot.info()),
            (Err(problem), None) => Err(problem),
            (Err(mut problem), Some(why)) => {
                problem.message += &format!("; the kernel's services are not available here: {}", why.what);
                problem.next_step = why.remedy.clone();
                Err(problem)
            }
        }
    }

    /// Registers a service of a process.
    pub(crate) fn register(&self, peer: Peer, request: ServiceRequest) -> Result<ServiceInfo, Problem> {
        let ServiceRequest { lease, name, about, format, open } = request;
        check_name(&name)?;
        let format = event_format(&format)?;
        // Names of the kernel's services are reserved, even if the kernel cannot be opened.
        let _ = self.kernel();
        let about: String = about.chars().filter(|c| is_plain(*c)).take(ABOUT).collect();
        let hook = format!("process {}", peer.pid);
        let mut service = Service::new(&name, &about, Origin::User, &hook, format);
        let text = service.text();
        let mut registry = self.registry();
        let owner = registry.lease(lease, peer)?.peer;
        registry.check_room_for_service(owner.owner, &self.config())?;
        service.owner = Some(ServiceOwner { lease, peer: owner, open });
        (service.max_instructions, _) = self.config().instructions_at(&name, Origin::User);
        let id = registry.add_service(service)?;
        let snapshot = registry.services[&id].snapshot(id);
        drop(registry);
        self.files.show(&name, &text);
        Ok(snapshot.info())
    }

    /// Ends a service and informs its subscribers.
    pub(crate) fn unregister(&self, peer: Peer, name: &str) -> Result<(), Problem> {
        let registry = self.registry();
        let (id, service) = registry.service(name)?;
        let owner = service.owner.ok_or_else(|| problems::not_your_service(name, 0, peer.owner.uid))?;
        if !peer.may_touch(owner.peer.owner) {
            return Err(problems::not_your_service(name, owner.peer.owner.uid, peer.owner.uid));
        }
        drop(registry);
        drop(self.end_service(id));
        Ok(())
    }

    /// Ends a service and its subscriptions. The caller drops the returned parts outside of the registry's lock.
    #[must_use]
    pub(super) fn end_service(&self, id: ServiceId) -> Vec<Remains> {
        let removed = self.registry().remove_service(id);
        let Some(service) = removed else { return Vec::new() };
        self.files.hide(&service.name);
        let ended = service.subscriptions.into_iter().filter_map(|subscription| {
            self.report_ended(&subscription, "its service has ended");
            self.end_subscription(subscription.id)
        });
        ended.collect()
    }

    /// Named handlers that `peer` may use.
    pub(crate) fn handlers(&self, peer: Peer) -> Vec<HandlerInfo> {
        let registry = self.registry();
        let usable = registry.handlers.values().filter(|h| h.info.open || peer.may_touch(h.info.owner));
        usable.map(|handler| handler.info.clone()).collect()
    }

    /// One named handler that `peer` may use.
    pub(crate) fn handler(&self, peer: Peer, name: &str) -> Result<HandlerInfo, Problem> {
        Ok(self.registry().handler(name, peer)?.info.clone())
    }

    /// Stores a handler under a name. Only its syntax is checked, because its meaning depends on the service.
    pub(crate) fn put_handler(&self, peer: Peer, name: &str, request: HandlerRequest) -> Result<HandlerInfo, Problem> {
        let HandlerRequest { lease, code, open } = request;
        check_name(name)?;
        qfabric_ecode::pretty(&code).map_err(|diagnostics| problems::code(name, &diagnostics))?;
        let mut registry = self.registry();
        if let Some(lease) = lease {
            registry.lease(lease, peer)?;
        }
        match registry.handlers.get(name) {
            Some(old) if !peer.may_touch(old.info.owner) => return Err(problems::service_exists(name)),
            Some(_) => {}
            None => registry.check_room_for_handler(peer.owner, &self.config())?,
        }
        let info = HandlerInfo { name: name.to_owned(), code, owner: peer.owner, open };
        registry.handlers.insert(name.to_owned(), Handler { info: info.clone(), lease, compiled: Compiled::default() });
        Ok(info)
    }

    /// Removes a named handler. Subscriptions that use it continue.
    pub(crate) fn remove_handler(&self, peer: Peer, name: &str) -> Result<(), Problem> {
        let mut registry = self.registry();
        let own = registry.handlers.get(name).is_some_and(|handler| peer.may_touch(handler.info.owner));
        match own.then(|| registry.handlers.remove(name)) {
            Some(_) => Ok(()),
            None => Err(problems::no_such_handler(name)),
        }
    }
}

/// The last structure that the text declares.
fn event_format(text: &str) -> Result<Format, Problem> {
    let formats = qfabric_ecode::parse_formats(text).map_err(|error| problems::code("the format", &error))?;
    let none = || problems::chain("the format declares no structure", "write struct NAME { … };");
    formats.into_iter().next_back().ok_or_else(none)
}

/// Names are also used as file names.
fn check_name(name: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let inside = name.trim_matches('.').contains('.') && name.starts_with(|c: char| c.is_ascii_alphanumeric());
    match (3..=64).contains(&name.len()) && name.chars().all(plain) && inside {
        true => Ok(()),
        false => Err(problems::bad_name(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_names_are_safe_file_names() {
        for good in ["a.b", "player.frame", "x-1.y_2.z"] {
            assert!(check_name(good).is_ok(), "{good}");
        }
        for bad in ["", "ab", "player", ".a.b", "../x", "a/b.c", "a b.c", "é.x", "a.", &"a.".repeat(40)] {
            assert_eq!(check_name(bad).unwrap_err().code, "invalid", "{bad}");
        }
    }
}
