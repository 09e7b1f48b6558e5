//! Reads and writes the fields of a tail.

use qfabric_broker::{HoldBound, HoldHolder, HoldRefusal};
use qfabric_types::channel::Name;
use qfabric_types::{BitRate, Bytes, Direction, LinkEnd, Nanos, Resource, Resources, Share};

use super::super::{CapScope, NoConsent, OverCap, Reason};

/// The written bytes.
pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn word(&mut self, word: u32) {
        self.0.extend(word.to_le_bytes());
    }

    pub(super) fn long(&mut self, long: u64) {
        self.0.extend(long.to_le_bytes());
    }

    /// A text of at most 255 bytes: names of hosts and interfaces are shorter.
    pub(super) fn text(&mut self, text: &str) {
        self.byte(text.len() as u8);
        self.0.extend(text.as_bytes());
    }

    pub(super) fn vector(&mut self, vector: &Resources) {
        self.word(vector.cpu.ppm());
        self.long(vector.memory.get());
        let links = vector.iter().filter_map(|(resource, amount)| match resource {
            Resource::Network(end) => Some((end, amount.units())),
            Resource::Cpu | Resource::Memory => None,
        });
        let links: Vec<_> = links.collect();
        self.byte(links.len() as u8);
        for (end, rate) in links {
            self.end(&end);
            self.long(rate);
        }
    }

    pub(super) fn reason(&mut self, reason: &Reason) {
        match reason {
            Reason::Short(shortage) => {
                self.byte(0);
                self.resource(&shortage.resource);
                let HoldRefusal { asked, minimum, free, largest, .. } = &**shortage;
                [asked, minimum, free, largest].into_iter().for_each(|amount| self.long(amount.units()));
                self.byte(shortage.is_transient.into());
                self.bound(shortage.bound);
                self.holders(&shortage.holders);
                if let Some(others) = shortage.others {
                    self.long(others.units());
                }
            }
            Reason::NotBrokered(resource) => {
                self.byte(1);
                self.resource(resource);
            }
            Reason::NoConsent(NoConsent::Declined) => self.byte(2),
            Reason::NoConsent(NoConsent::Silent) => self.byte(9),
            Reason::NoConsent(NoConsent::Absent) => self.byte(10),
            // A participant sends neither Silent nor Invalid.
            Reason::Ended | Reason::Silent | Reason::Invalid => self.byte(3),
            Reason::Full { limit } => {
                self.byte(4);
                self.word(*limit);
            }
            Reason::Hold { given } => {
                self.byte(5);
                self.long(given.get());
            }
            Reason::Version { speaks } => {
                self.byte(6);
                self.byte(*speaks);
            }
            Reason::OverCap(over) => self.over_cap(over),
        }
    }

    fn over_cap(&mut self, over: &OverCap) {
        match over {
            OverCap::Contracts { scope, cap } => {
                self.byte(7);
                self.scope(*scope);
                self.word(*cap);
            }
            OverCap::Amount { scope, resource, asked, minimum, cap, left } => {
                self.byte(8);
                self.scope(*scope);
                self.resource(resource);
                [asked, minimum, cap, left].into_iter().for_each(|amount| self.long(amount.units()));
            }
        }
    }

    fn bound(&mut self, bound: HoldBound) {
        let (kind, number, amount) = match bound {
            HoldBound::Free => (0, 0, 0),
            HoldBound::User { uid, cap } => (1, uid, cap),
            HoldBound::Group { gid, cap } => (2, gid, cap),
            HoldBound::Number { uid, most } => (3, uid, most.into()),
        };
        self.byte(kind);
        self.word(number);
        self.long(amount);
    }

    /// At most [`HoldRefusal::MOST_HOLDERS`]; an older host ignores them.
    fn holders(&mut self, holders: &[HoldHolder]) {
        let most = &holders[..holders.len().min(HoldRefusal::MOST_HOLDERS)];
        self.byte(most.len() as u8);
        for holder in most {
            self.text(holder.initiator.as_str());
            self.long(holder.amount.units());
        }
    }

    fn scope(&mut self, scope: CapScope) {
        match scope {
            CapScope::Host => self.byte(0),
            CapScope::Group(gid) => {
                self.byte(1);
                self.word(gid);
            }
        }
    }

    fn resource(&mut self, resource: &Resource) {
        match resource {
            Resource::Cpu => self.byte(0),
            Resource::Memory => self.byte(1),
            Resource::Network(end) => {
                self.byte(2);
                self.end(end);
            }
        }
    }

    fn end(&mut self, end: &LinkEnd) {
        self.byte((end.direction == Direction::In).into());
        self.text(end.interface.as_str());
    }
}

/// The unread rest.
pub(super) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.byte().filter(|byte| *byte <= 1).map(|byte| byte == 1)
    }

    /// The last field of a tail, which an older host does not write; absent: false.
    pub(super) fn optional_flag(&mut self) -> Option<bool> {
        if self.0.is_empty() { Some(false) } else { self.flag() }
    }

    pub(super) fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A valid name; `Some(None)`: an empty text.
    pub(super) fn name(&mut self) -> Option<Option<Name>> {
        match self.text()? {
            "" => Some(None),
            text => text.parse().ok().map(Some),
        }
    }

    /// A vector without zero rates and repeated links.
    pub(super) fn vector(&mut self) -> Option<Resources> {
        let mut vector = Resources::default();
        vector.cpu = Share::from_ppm(self.word().filter(|ppm| *ppm <= Share::MAX.ppm())?);
        vector.memory = Bytes::new(self.long().filter(|bytes| *bytes <= Bytes::MAX.get())?);
        let count = usize::from(self.byte()?);
        if count > Resources::MAX_LINKS {
            return None;
        }
        for _ in 0..count {
            let (end, rate) = (self.end()?, BitRate::new(self.long()?));
            let is_new = vector.network(&end) == BitRate::ZERO;
            if !is_new || rate == BitRate::ZERO || rate > BitRate::MAX {
                return None;
            }
            vector.set_network(end, rate).ok()?;
        }
        Some(vector)
    }

    pub(super) fn reason(&mut self) -> Option<Reason> {
        Some(match self.byte()? {
            0 => Reason::Short(Box::new(self.shortage()?)),
            1 => Reason::NotBrokered(self.resource()?),
            2 => Reason::NoConsent(NoConsent::Declined),
            3 => Reason::Ended,
            4 => Reason::Full { limit: self.word()? },
            5 => Reason::Hold { given: Nanos::new(self.long()?) },
            6 => Reason::Version { speaks: self.byte()? },
            7 => Reason::OverCap(OverCap::Contracts { scope: self.scope()?, cap: self.word()? }),
            8 => Reason::OverCap(self.amount_over_cap()?),
            9 => Reason::NoConsent(NoConsent::Silent),
            10 => Reason::NoConsent(NoConsent::Absent),
            _ => return None,
        })
    }

    fn shortage(&mut self) -> Option<HoldRefusal> {
        let resource = self.resource()?;
        let mut amount = || self.long().map(|units| resource.amount(units));
        let (asked, minimum, free, largest) = (amount()?, amount()?, amount()?, amount()?);
        let (is_transient, bound, holders) = (self.flag()?, self.bound()?, self.holders(&resource)?);
        // The last field, which an older host does not write.
        let others = if self.0.is_empty() { None } else { Some(resource.amount(self.long()?)) };
        Some(HoldRefusal { asked, minimum, free, largest, bound, is_transient, holders, others, resource })
    }

    /// A field of a shortage that an older host does not write; absent: none is named.
    fn holders(&mut self, resource: &Resource) -> Option<Vec<HoldHolder>> {
        if self.0.is_empty() {
            return Some(Vec::new());
        }
        let count = usize::from(self.byte()?);
        if count > HoldRefusal::MOST_HOLDERS {
            return None;
        }
        let mut holders = Vec::with_capacity(count);
        for _ in 0..count {
            holders.push(HoldHolder { initiator: self.name()??, amount: resource.amount(self.long()?) });
        }
        Some(holders)
    }

    fn bound(&mut self) -> Option<HoldBound> {
        let (kind, number, amount) = (self.byte()?, self.word()?, self.long()?);
        match kind {
            0 => Some(HoldBound::Free),
            1 => Some(HoldBound::User { uid: number, cap: amount }),
            2 => Some(HoldBound::Group { gid: number, cap: amount }),
            3 => u32::try_from(amount).ok().map(|most| HoldBound::Number { uid: number, most }),
            _ => None,
        }
    }

    fn amount_over_cap(&mut self) -> Option<OverCap> {
        let (scope, resource) = (self.scope()?, self.resource()?);
        let mut amount = || self.long().map(|units| resource.amount(units));
        let (asked, minimum, cap, left) = (amount()?, amount()?, amount()?, amount()?);
        Some(OverCap::Amount { scope, resource, asked, minimum, cap, left })
    }

    fn scope(&mut self) -> Option<CapScope> {
        match self.byte()? {
            0 => Some(CapScope::Host),
            1 => self.word().map(CapScope::Group),
            _ => None,
        }
    }

    fn resource(&mut self) -> Option<Resource> {
        match self.byte()? {
            0 => Some(Resource::Cpu),
            1 => Some(Resource::Memory),
            2 => self.end().map(Resource::Network),
            _ => None,
        }
    }

    fn end(&mut self) -> Option<LinkEnd> {
        let direction = if self.flag()? { Direction::In } else { Direction::Out };
        Some(LinkEnd { interface: self.text()?.parse().ok()?, direction })
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*array)
    }
}
