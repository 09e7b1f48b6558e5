//! The option `listen` for services whose hook has the socket: port, address, and network namespace.

use std::os::unix::fs::MetadataExt;

use qfabric_ecode::bpf::{Jmp, Reg};

use super::super::Unsupported;
use super::super::source::Prologue;

const IPV6: i32 = 10;

/// Skips the event unless argument 0 is a socket with the local port and address of the option `listen`, in the
/// network namespace of this process. A socket that is bound to no address fits every address. r1 and r2 are lost.
pub(super) fn only(p: &mut Prologue) -> Result<(), Unsupported> {
    let Some(listen) = p.options.listen() else { return Ok(()) };
    let skip = p.skip;
    p.load_path(Reg::R1, 0, "__sk_common.skc_num")?;
    p.asm.jump_if(Jmp::Ne, Reg::R1, i32::from(listen.port), skip);
    p.load_path(Reg::R1, 0, "__sk_common.skc_net.net.ns.inum")?;
    p.asm.jump_if32(Jmp::Ne, Reg::R1, own_namespace()? as i32, skip);
    match listen.address.as_deref() {
        None => Ok(()),
        Some(address) if address.len() == 4 => only_v4(p, address),
        Some(address) => only_v6(p, address),
    }
}

fn only_v4(p: &mut Prologue, address: &[u8]) -> Result<(), Unsupported> {
    let (any, skip) = (p.asm.label(), p.skip);
    p.load_path(Reg::R1, 0, "__sk_common.skc_rcv_saddr")?;
    p.asm.jump_if(Jmp::Eq, Reg::R1, 0, any);
    p.asm.jump_if32(Jmp::Ne, Reg::R1, word(address), skip);
    p.asm.bind(any);
    Ok(())
}

fn only_v6(p: &mut Prologue, address: &[u8]) -> Result<(), Unsupported> {
    let (differs, fits, skip) = (p.asm.label(), p.asm.label(), p.skip);
    p.load_path(Reg::R1, 0, "__sk_common.skc_family")?;
    p.asm.jump_if(Jmp::Ne, Reg::R1, IPV6, skip);
    for (part, word_of_address) in address.chunks(4).enumerate() {
        p.load_word_of_path(Reg::R1, 0, "__sk_common.skc_v6_rcv_saddr", 4 * part as i16)?;
        p.asm.jump_if32(Jmp::Ne, Reg::R1, word(word_of_address), differs);
    }
    p.asm.jump(fits);
    p.asm.bind(differs);
    for part in 0..4 {
        p.load_word_of_path(Reg::R1, 0, "__sk_common.skc_v6_rcv_saddr", 4 * part)?;
        p.asm.jump_if(Jmp::Ne, Reg::R1, 0, skip);
    }
    p.asm.bind(fits);
    Ok(())
}

/// Four bytes of an address, as a 32-bit load reads them.
fn word(bytes: &[u8]) -> i32 {
    i32::from_ne_bytes(bytes.try_into().expect("addresses are whole words"))
}

/// The kernel's number of this thread's network namespace.
pub(in crate::ecalls) fn own_namespace() -> Result<u32, Unsupported> {
    let found = std::fs::metadata("/proc/thread-self/ns/net").map_err(|error| Unsupported {
        what: format!("the network namespace of this process is not known (/proc/thread-self/ns/net: {error})"),
        remedy: "mount /proc".into(),
    })?;
    Ok(found.ino() as u32)
}
