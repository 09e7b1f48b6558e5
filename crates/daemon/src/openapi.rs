//! Serves `GET /v1/openapi.json`: the requests and answers of this API, derived from the types that the code uses.

use utoipa::OpenApi;

use crate::api::{ecalls, routes};
use crate::channels::routes as channels;
use crate::contracts::routes as contracts;
use crate::net::routes as net;
use crate::web::routes as web;

/// The description as JSON.
pub(crate) fn document() -> String {
    Described::openapi().to_json().expect("the description is plain data")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Q-Fabric local API",
        description = "HTTP over the Unix socket qfabric.sock; peer credentials decide. Times are in nanoseconds, \
                       shares in CPUs. Every refusal is a Problem; a refused request changes nothing.",
    ),
    paths(
        routes::join,
        routes::list,
        routes::show,
        routes::change,
        routes::leave,
        routes::claim,
        routes::give_back,
        routes::status,
        routes::limits,
        routes::set_limits,
        routes::change_limits,
        routes::timeline_page,
        routes::measure,
        routes::energy_status,
        routes::save_energy,
        ecalls::services,
        ecalls::service,
        ecalls::register,
        ecalls::unregister,
        ecalls::raise,
        ecalls::call,
        ecalls::handlers,
        ecalls::handler,
        ecalls::put_handler,
        ecalls::remove_handler,
        ecalls::deploy,
        ecalls::subscriptions,
        ecalls::subscribe,
        ecalls::subscription,
        ecalls::set_attributes,
        ecalls::unsubscribe,
        net::interfaces,
        net::show,
        net::attach,
        net::detach,
        net::open_link,
        net::close_link,
        net::begin,
        net::change,
        net::end,
        channels::list,
        channels::create,
        channels::show,
        channels::open,
        channels::close,
        channels::join_source,
        channels::join_sink,
        channels::change_source,
        channels::leave_source,
        channels::change_sink,
        channels::leave_sink,
        channels::filters::install,
        channels::filters::parametrize,
        channels::filters::remove,
        channels::filters::bind,
        channels::groups::list,
        channels::groups::register,
        channels::groups::unregister,
        channels::groups::hosts,
        channels::access::reload,
        channels::monitors::list,
        channels::monitors::set,
        channels::policies::list,
        channels::policies::start,
        channels::policies::stop,
        channels::policies::why,
        contracts::own,
        contracts::apply,
        contracts::list,
        contracts::show,
        contracts::end,
        contracts::begin,
        contracts::asking::next_offer,
        contracts::asking::answer_offer,
        contracts::asking::consents,
        contracts::asking::consent,
        contracts::asking::end_consent,
        contracts::asking::next_question,
        contracts::asking::answer_question,
        web::open,
        routes::describe
    )
)]
struct Described;

#[cfg(test)]
mod tests {
    use super::*;
    use qfabric_types::Contract;
    use serde_json::Value;

    fn described() -> Value {
        serde_json::from_str(&document()).unwrap()
    }

    #[test]
    fn every_served_path_is_described() {
        assert_described(&[
            ("/v1/applications", &["get", "post"][..]),
            ("/v1/applications/{id}", &["get", "patch", "delete"]),
            ("/v1/applications/{id}/energy", &["put"]),
            ("/v1/claims/{claim}", &["post", "delete"]),
            ("/v1/status", &["get"]),
            ("/v1/limits", &["get", "put", "patch"]),
            ("/v1/energy", &["get"]),
            ("/v1/timeline", &["get"]),
            ("/metrics", &["get"]),
            ("/v1/services", &["get", "post"]),
            ("/v1/services/{name}", &["get", "delete"]),
            ("/v1/services/{name}/events", &["post"]),
            ("/v1/services/{name}/call", &["post"]),
            ("/v1/handlers", &["get"]),
            ("/v1/handlers/{name}", &["get", "put", "delete"]),
            ("/v1/deployments", &["post"]),
            ("/v1/subscriptions", &["get", "post"]),
            ("/v1/subscriptions/{id}", &["get", "patch", "delete"]),
            ("/v1/channels", &["get", "post"]),
            ("/v1/channels/{channel}", &["get"]),
            ("/v1/channels/{channel}/sinks", &["post"]),
            ("/v1/sinks/{number}", &["patch", "delete"]),
            ("/v1/channels/{channel}/filters/{direction}/{filter}", &["put", "patch"]),
            ("/v1/groups", &["get", "post"]),
            ("/v1/hosts", &["get"]),
            ("/v1/access/reload", &["post"]),
            ("/v1/monitors", &["get"]),
            ("/v1/monitors/{attribute}", &["put"]),
            ("/v1/policies", &["get", "post"]),
            ("/v1/policies/{name}", &["delete"]),
            ("/v1/host", &["get"]),
            ("/v1/web", &["post"]),
            ("/v1/openapi.json", &["get"]),
        ]);
    }

    #[test]
    fn every_path_of_joint_contracts_is_described() {
        assert_described(&[
            ("/v1/contracts", &["get", "post"][..]),
            ("/v1/contracts/{id}", &["get", "delete"]),
            ("/v1/contracts/{id}/streams/{interface}", &["post"]),
            ("/v1/contracts/{id}/upgrade", &["get", "post"]),
            ("/v1/consents", &["get"]),
            ("/v1/consents/{application}", &["put", "delete"]),
            ("/v1/consents/{application}/question", &["get"]),
            ("/v1/consents/{application}/questions/{number}", &["post"]),
        ]);
    }

    fn assert_described(all: &[(&str, &[&str])]) {
        let paths = described()["paths"].clone();
        for (path, methods) in all {
            assert!(methods.iter().all(|method| paths[*path][*method].is_object()), "{path}");
        }
    }

    #[test]
    fn every_referenced_schema_exists() {
        let text = document();
        let schemas = described()["components"]["schemas"].clone();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas[name].is_object(), "{name} is referenced but not described");
        }
    }

    /// The description has the same field names as the JSON that is really sent, and types that fit its values.
    #[test]
    fn the_description_of_a_contract_matches_its_json() {
        // Without memory or utility their fields are not sent.
        let utility = Some(qfabric_types::Utility { metrics: Vec::new() });
        let contract = Contract { memory: qfabric_types::Bytes::from_mib(1), utility, ..Contract::default() };
        let sent = serde_json::to_value(contract).unwrap();
        let described = described()["components"]["schemas"]["Contract"]["properties"].clone();
        let names =
            |value: &Value| value.as_object().unwrap().keys().cloned().collect::<std::collections::BTreeSet<_>>();
        assert_eq!(names(&sent), names(&described));
        for (name, value) in sent.as_object().unwrap() {
            let kind = described[name]["type"].as_str();
            let fits = match value {
                Value::String(_) => kind == Some("string"),
                Value::Bool(_) => kind == Some("boolean"),
                Value::Number(n) if n.is_u64() => matches!(kind, Some("integer" | "number")),
                Value::Number(_) => kind == Some("number"),
                _ => true,
            };
            assert!(fits || described[name]["$ref"].is_string(), "{name}: sent {value}, described {}", described[name]);
        }
    }
}
