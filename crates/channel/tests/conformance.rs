//! The conformance suite over a simulated network: without faults, with losses, with reordering.

use qfabric_channel::testing::{Memory, Settings};

qfabric_channel::conformance_suite!(Memory::new(Settings::default()));

/// The same suite with signed creations.
mod signed {
    use qfabric_channel::testing::{Memory, Settings};
    use qfabric_channel::{Config, Notary};
    use qfabric_types::channel::Name;

    /// Accepts a proof that ends in the creator's name.
    struct Named(Name);

    impl Notary for Named {
        fn sign(&self, statement: &[u8]) -> Option<Vec<u8>> {
            Some([statement, self.0.as_str().as_bytes()].concat())
        }

        fn verifies(&self, creator: &Name, _: u64, statement: &[u8], proof: &[u8]) -> bool {
            proof == [statement, creator.as_str().as_bytes()].concat()
        }
    }

    fn named(config: Config) -> Config {
        Config { notary: Some(Box::new(Named(config.host.clone()))), ..config }
    }

    qfabric_channel::conformance_suite!(Memory::configured(Settings::default(), named));
}
