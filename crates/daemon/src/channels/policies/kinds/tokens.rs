use qfabric_host::manager::Controller;
use qfabric_host::manager::policies::{TokenTerms, Tokens};
use qfabric_types::api::Problem;
use qfabric_types::api::channel::TokensPolicy;
use qfabric_types::{BitRate, Instant};

use super::{Fabric, Runs, Shared, quality, refused};

impl Runs for TokensPolicy {
    fn controller(&self, _fabric: &Fabric, _record: &Shared, _now: Instant) -> Result<Box<dyn Controller>, Problem> {
        let TokensPolicy { rate, interface, stream, least, most, channel, .. } = self;
        if !(0.001..=1e6).contains(rate) {
            return Err(refused::out_of_range("rate", rate, "0.001 to 1000000 events per second"));
        }
        if *least == BitRate::ZERO || least > most {
            return Err(refused::out_of_range("least", least, &format!("1 bit/s to the largest rate, {most}")));
        }
        let terms = TokenTerms::new(*rate, least.as_f64(), most.as_f64());
        Ok(Box::new(Tokens::new(&quality(channel), (interface.as_str(), *stream), terms)))
    }
}
