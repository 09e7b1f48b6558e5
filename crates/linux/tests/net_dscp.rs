//! The code points of the packets of streams on a real interface, under HTB and, where the kernel has it, under DWCS.

mod net_common;

use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

use net_common::{Folder, root, spec};
use qfabric_linux::net::testing::{Frames, Interface, frame};
use qfabric_linux::net::{self, Attachment};
use qfabric_types::api::net::{AttachRequest, NetMechanism, Selector, StreamChange, StreamSpec};
use rustix::net::sockopt::set_ip_tos;

const NEAR: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// Needs no address resolution.
const ALL: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 255);
const ETHERNET: usize = 14;

/// A link, an ordinary program that sends, and the packets at the other end.
struct Site {
    near: Interface,
    far: Frames,
    program: UdpSocket,
    attachment: Attachment,
}

impl Site {
    fn new(name: &str, mechanism: NetMechanism) -> Site {
        let near = Interface::veth(&format!("q{name}"), &format!("p{name}")).unwrap();
        near.address(NEAR).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        let far = Frames::at(net::index(&format!("p{name}")).unwrap(), 0).unwrap();
        let program = UdpSocket::bind((NEAR, 0)).unwrap();
        program.set_broadcast(true).unwrap();
        set_ip_tos(&program, 10 << 2 | 1).unwrap(); // code point 10, and «able to notice congestion»
        let request = AttachRequest { mechanism: Some(mechanism), rate_bps: Some(100_000_000), ..Default::default() };
        let attachment = Attachment::attach(&near.name, &request, &mut Folder::book()).unwrap();
        Site { near, far, program, attachment }
    }

    /// The stream of all that the program sends.
    fn of_program(&self) -> StreamSpec {
        let port = self.program.local_addr().unwrap().port();
        let flow = format!("udp,{NEAR}:{port},{ALL}:6000").parse().unwrap();
        StreamSpec { selector: Selector::Flow(flow), ..spec(1, 10, 4) }
    }

    /// Code point and bits of congestion notification of the program's next packet.
    fn arrives(&self) -> (u8, u8) {
        self.program.send_to(&[7; 300], (ALL, 6_000)).unwrap();
        let packet = self.next(|packet| packet[12..14] == [8, 0] && packet[23] == 17);
        let sum: u32 = packet[ETHERNET..][..20].chunks(2).map(|two| u32::from(two[0]) << 8 | u32::from(two[1])).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "the checksum fits the header");
        (packet[ETHERNET + 1] >> 2, packet[ETHERNET + 1] & 3)
    }

    fn next(&self, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let (begun, mut buffer) = (Instant::now(), [0; 2_048]);
        loop {
            match self.far.receive(&mut buffer) {
                Ok(bytes) if bytes > 54 && is_it(&buffer[..bytes]) => return buffer[..bytes].to_vec(),
                _ => assert!(begun.elapsed() < Duration::from_secs(60), "no packet arrives"),
            }
        }
    }
}

fn mechanisms() -> Vec<NetMechanism> {
    let dwcs = net::supported().is_ok().then_some(NetMechanism::Dwcs);
    [NetMechanism::Htb].into_iter().chain(dwcs).collect()
}

#[test]
fn packets_of_an_unmodified_program_get_the_code_point_of_their_stream() {
    let Some(_live) = root() else { return };
    for mechanism in mechanisms() {
        let mut site = Site::new("dscp", mechanism);
        assert_eq!(site.arrives(), (10, 1));
        let plain = site.of_program();
        let stream = site.attachment.begin(&StreamSpec { dscp: Some(46), ..plain.clone() }).unwrap();
        assert_eq!(site.arrives(), (46, 1));
        assert_eq!(site.attachment.counters(stream).sent, 1, "the stream is found as before");
        let other = plain.changed(&StreamChange { dscp: Some(0), ..StreamChange::default() });
        site.attachment.change(stream, &other).unwrap();
        assert_eq!(site.arrives(), (0, 1));
        site.attachment.end(stream).unwrap();
        assert_eq!(site.arrives(), (10, 1), "the program's own code point is back");
        let refused = site.attachment.begin(&StreamSpec { dscp: Some(64), ..plain }).unwrap_err().to_string();
        assert_eq!(refused, "dscp is 64; from 0 to 63, such as 46 for expedited forwarding");
    }
}

#[test]
fn a_packet_that_two_selectors_match_has_the_code_point_of_its_own_stream() {
    let Some(_live) = root() else { return };
    for mechanism in mechanisms() {
        let mut site = Site::new("two", mechanism);
        qfabric_linux::net::testing::mark(&site.program, 300).unwrap();
        let plain = site.of_program();
        let by_mark = site.attachment.begin(&StreamSpec { dscp: Some(34), ..spec(300, 10, 4) }).unwrap();
        assert_eq!(site.arrives(), (34, 1));
        // A flow comes before a mark, and this one has no code point.
        let by_flow = site.attachment.begin(&plain).unwrap();
        assert_eq!(site.arrives(), (10, 1));
        site.attachment.end(by_flow).unwrap();
        assert_eq!(site.arrives(), (34, 1));
        site.attachment.end(by_mark).unwrap();
    }
}

#[test]
fn packets_of_ipv6_keep_their_flow_label_and_all_other_bits() {
    let Some(_live) = root() else { return };
    for mechanism in mechanisms() {
        let mut site = Site::new("six", mechanism);
        site.attachment.begin(&StreamSpec { dscp: Some(46), ..spec(300, 10, 4) }).unwrap();
        let mut sent = frame(&"udp,[fd00::1]:5000,[fd00::2]:6000".parse().unwrap(), &[7; 100]);
        sent[ETHERNET..][..4].copy_from_slice(&[0x6f, 0xfa, 0xbc, 0xde]); // field 0xff, label 0xabcde
        Frames::at(site.near.ifindex, 300).unwrap().send(&sent).unwrap();
        let packet = site.next(|packet| packet[12..14] == [0x86, 0xdd] && packet[20] == 17);
        assert_eq!(packet[ETHERNET..][..4], [0x6b, 0xba, 0xbc, 0xde], "field 46 << 2 | 3");
        assert_eq!(packet[ETHERNET + 4..], sent[ETHERNET + 4..]);
    }
}
