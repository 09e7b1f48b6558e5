//! The boot script: the modules to load and the commands to run, as one file in the image.
//!
//! Format: fields that end with NUL. A list is its length as a decimal number, followed by its fields. Paths,
//! arguments and variables cannot contain NUL, so no field needs escaping.

/// The work that the machine is started for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BootScript {
    /// Paths of kernel modules in the image, in the order in which they must be loaded.
    pub modules: Vec<String>,
    /// The commands, which run one after the other, whatever the exit code of the one before.
    pub commands: Vec<Command>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program's path, then its arguments.
    pub argv: Vec<String>,
    /// The folder in which the program starts.
    pub folder: String,
    /// Variables as `NAME=value`, in addition to PATH, HOME and TMPDIR.
    pub variables: Vec<String>,
}

/// The boot script cannot be decoded; harness and image probably have different versions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootScriptError(String);

impl std::fmt::Display for BootScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "the boot script is damaged ({}); harness and image may differ in version: build the image again",
            self.0
        )
    }
}

impl std::error::Error for BootScriptError {}

impl BootScript {
    /// The contents of the boot script's file in the image.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        list(&mut out, &self.modules);
        field(&mut out, &self.commands.len().to_string());
        for command in &self.commands {
            list(&mut out, &command.argv);
            field(&mut out, &command.folder);
            list(&mut out, &command.variables);
        }
        out
    }

    /// Decodes the contents of the boot script's file.
    pub fn decode(bytes: &[u8]) -> Result<BootScript, BootScriptError> {
        let mut fields = Fields(bytes);
        let modules = fields.list()?;
        let commands = (0..fields.number()?).map(|_| fields.command()).collect::<Result<_, _>>()?;
        if fields.0.is_empty() {
            Ok(BootScript { modules, commands })
        } else {
            Err(BootScriptError("it has extra bytes at its end".to_owned()))
        }
    }
}

fn list(out: &mut Vec<u8>, items: &[String]) {
    field(out, &items.len().to_string());
    items.iter().for_each(|item| field(out, item));
}

fn field(out: &mut Vec<u8>, text: &str) {
    out.extend(text.bytes().filter(|byte| *byte != 0));
    out.push(0);
}

struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next(&mut self) -> Result<String, BootScriptError> {
        let end =
            self.0.iter().position(|byte| *byte == 0).ok_or_else(|| BootScriptError("it ends too early".to_owned()))?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        String::from_utf8(text.to_vec()).map_err(|e| BootScriptError(e.to_string()))
    }

    fn number(&mut self) -> Result<usize, BootScriptError> {
        let text = self.next()?;
        text.parse().map_err(|_| BootScriptError(format!("{text:?} is not a length")))
    }

    fn list(&mut self) -> Result<Vec<String>, BootScriptError> {
        (0..self.number()?).map(|_| self.next()).collect()
    }

    fn command(&mut self) -> Result<Command, BootScriptError> {
        Ok(Command { argv: self.list()?, folder: self.next()?, variables: self.list()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script() -> BootScript {
        let argv = vec!["/bin/t".to_owned(), "a b".to_owned(), String::new()];
        let command = Command { argv, folder: "/".to_owned(), variables: vec!["A=1\n2".to_owned()] };
        BootScript { modules: vec!["/m/veth.ko.xz".to_owned()], commands: vec![command, Command::default()] }
    }

    #[test]
    fn an_encoded_errand_decodes_to_itself() {
        assert_eq!(BootScript::decode(&script().encode()), Ok(script()));
        assert_eq!(BootScript::decode(&BootScript::default().encode()), Ok(BootScript::default()));
    }

    #[test]
    fn a_cut_or_longer_errand_is_refused() {
        let bytes = script().encode();
        for end in 0..bytes.len() {
            assert!(BootScript::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        assert!(BootScript::decode(&[bytes, b"x\0".to_vec()].concat()).is_err());
    }
}
