//! The kernel's program: unpacks it, and reads from its type information (BTF) which features it has.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use xshell::{Shell, cmd};

/// First bytes of a zstd stream.
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Unpacks the ELF file in the payload of a bzImage (Documentation/arch/x86/boot.rst: the payload begins
/// `payload_offset` after the setup sectors; its last four bytes are the unpacked length).
pub(super) fn unpack(sh: &Shell, vmlinuz: &Path, to: &Path) -> Result<()> {
    let image = fs::read(vmlinuz).with_context(|| vmlinuz.display().to_string())?;
    let payload = payload(&image).with_context(|| vmlinuz.display().to_string())?;
    let packed = to.with_extension("zst");
    fs::write(&packed, payload)?;
    cmd!(sh, "zstd -dqf {packed} -o {to}").quiet().run()?;
    Ok(fs::remove_file(&packed)?)
}

fn payload(image: &[u8]) -> Result<&[u8]> {
    ensure!(image.get(0x202..0x206) == Some(b"HdrS"), "the file is not a bzImage");
    let setup_sectors = usize::from(image[0x1f1].max(1));
    let start = (setup_sectors + 1) * 512 + number(image, 0x248)?;
    let length = number(image, 0x24c)?;
    let payload = image.get(start..start + length).context("the payload of the bzImage is incomplete")?;
    ensure!(payload.starts_with(&ZSTD), "the payload of the bzImage is not compressed with zstd");
    Ok(&payload[..length - 4])
}

fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let four: Option<[u8; 4]> = bytes.get(at..at + 4).and_then(|four| four.try_into().ok());
    Ok(u32::from_le_bytes(four.context("the file is incomplete")?) as usize)
}

fn long(bytes: &[u8], at: usize) -> Result<usize> {
    let eight: Option<[u8; 8]> = bytes.get(at..at + 8).and_then(|eight| eight.try_into().ok());
    Ok(usize::try_from(u64::from_le_bytes(eight.context("the file is incomplete")?))?)
}

fn short(bytes: &[u8], at: usize) -> Result<usize> {
    let two: Option<[u8; 2]> = bytes.get(at..at + 2).and_then(|two| two.try_into().ok());
    Ok(usize::from(u16::from_le_bytes(two.context("the file is incomplete")?)))
}

/// All names in the type information: types, members, and functions that BPF programs may call.
pub(super) struct Names(BTreeSet<String>);

impl Names {
    /// Reads the names from the ELF file.
    pub(super) fn read(vmlinux: &Path) -> Result<Names> {
        let file = fs::read(vmlinux).with_context(|| vmlinux.display().to_string())?;
        Names::of_btf(section(&file, ".BTF")?)
    }

    fn of_btf(btf: &[u8]) -> Result<Names> {
        const MAGIC: [u8; 2] = [0x9f, 0xeb];
        ensure!(btf.starts_with(&MAGIC), "the kernel has no type information (BTF)");
        let (head, at, length) = (number(btf, 4)?, number(btf, 16)?, number(btf, 20)?);
        let strings = btf.get(head + at..head + at + length).context("the type information is incomplete")?;
        let names = strings.split(|byte| *byte == 0).map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Names(names.collect()))
    }

    /// True if the name is in the type information.
    pub(super) fn contain(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Checks that BPF schedulers can be loaded; one function of a family stands for the others. Kernels built with
    /// an old pahole have the inner name of one of sched_ext's functions and not of another, and refuse every
    /// scheduler with an error that does not name the cause.
    pub(super) fn check(&self) -> Result<()> {
        let (one, other) = ("scx_bpf_dsq_insert_impl", "scx_bpf_create_dsq_impl");
        if self.contain(one) && !self.contain(other) {
            bail!("the kernel's type information is broken for sched_ext: it has {one} and not {other}");
        }
        Ok(())
    }
}

/// A section of an ELF file of 64 bits, little endian.
fn section<'a>(file: &'a [u8], name: &str) -> Result<&'a [u8]> {
    ensure!(file.starts_with(b"\x7fELF\x02\x01"), "the file is not a 64-bit ELF file");
    let (table, size, count) = (long(file, 0x28)?, short(file, 0x3a)?, short(file, 0x3c)?);
    let header = |index: usize| table + index * size;
    let content = |at: usize| -> Result<&'a [u8]> {
        let (start, length) = (long(file, at + 0x18)?, long(file, at + 0x20)?);
        file.get(start..start + length).context("the file is incomplete")
    };
    let names = content(header(short(file, 0x3e)?))?;
    for at in (0..count).map(header) {
        let own = names.get(number(file, at)?..).unwrap_or_default();
        if own.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&0)) {
            return content(at);
        }
    }
    bail!("the ELF file has no section {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[&str]) -> Names {
        let strings: Vec<u8> = all.iter().flat_map(|name| [name.as_bytes(), &[0]].concat()).collect();
        let mut btf = vec![0x9f, 0xeb, 1, 0];
        let length = u32::try_from(strings.len()).unwrap();
        [24, 0, 0, 0, length].iter().for_each(|n: &u32| btf.extend(n.to_le_bytes()));
        btf.extend(strings);
        Names::of_btf(&btf).unwrap()
    }

    #[test]
    fn type_information_of_an_old_pahole_is_refused() {
        let error = names(&["", "scx_bpf_dsq_insert_impl", "x"]).check().unwrap_err().to_string();
        assert!(error.contains("scx_bpf_create_dsq_impl"), "{error}");
        names(&["scx_bpf_dsq_insert_impl", "scx_bpf_create_dsq_impl"]).check().unwrap();
        names(&["scx_bpf_dsq_insert"]).check().unwrap();
    }

    #[test]
    fn names_are_whole_names() {
        let names = names(&["sched_ext_ops_extra"]);
        assert!(!names.contain("sched_ext_ops"));
    }

    #[test]
    fn a_file_that_is_not_a_kernel_is_refused() {
        assert!(payload(&[0; 4096]).is_err());
        assert!(section(b"\x7fELF\x02\x01", ".BTF").is_err());
        assert!(Names::of_btf(b"").is_err());
    }
}
