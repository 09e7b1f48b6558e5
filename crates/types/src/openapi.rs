//! OpenAPI schemas of the types whose JSON form differs from their Rust form.

use std::borrow::Cow;

use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{KnownFormat, RefOr, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

use crate::channel::Name;
use crate::{PredictorSpec, Reservation, Share, Window};

fn simple(kind: Type) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(SchemaType::new(kind))
}

fn done(object: ObjectBuilder) -> RefOr<Schema> {
    RefOr::T(Schema::Object(object.build()))
}

impl PartialSchema for Share {
    fn schema() -> RefOr<Schema> {
        let cpus = simple(Type::Number).format(Some(SchemaFormat::KnownFormat(KnownFormat::Double)));
        done(cpus.minimum(Some(0)).maximum(Some(4096)).description(Some("CPUs, to a millionth")))
    }
}

impl ToSchema for Share {
    fn name() -> Cow<'static, str> {
        "Share".into()
    }
}

/// The schema of a map of maxima in a merge patch: null removes one maximum, or the whole map.
pub(crate) fn changed_shares() -> RefOr<Schema> {
    let or_null = |kind| ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]));
    let share = or_null(Type::Number).minimum(Some(0)).maximum(Some(4096));
    let description = "Merged by key: a missing key keeps its maximum, null removes it";
    done(or_null(Type::Object).additional_properties(Some(share)).description(Some(description)))
}

/// The schema of a map of amounts of memory in a merge patch.
pub(crate) fn changed_amounts() -> RefOr<Schema> {
    let or_null = |kind| ObjectBuilder::new().schema_type(SchemaType::from_iter([kind, Type::Null]));
    let amount = or_null(Type::Integer).minimum(Some(0)).description(Some("bytes"));
    let description = "Merged by key: a missing key keeps its maximum, null removes it";
    done(or_null(Type::Object).additional_properties(Some(amount)).description(Some(description)))
}

impl PartialSchema for PredictorSpec {
    fn schema() -> RefOr<Schema> {
        let known = "ma:n, mma:n,S, ol:n,N, pct:n,percent or hint:n";
        done(simple(Type::String).description(Some(known)).examples(["ma:12", "mma:3,12", "hint:24"]))
    }
}

impl ToSchema for PredictorSpec {
    fn name() -> Cow<'static, str> {
        "PredictorSpec".into()
    }
}

impl PartialSchema for Reservation {
    fn schema() -> RefOr<Schema> {
        let time = || simple(Type::Integer).minimum(Some(0)).build();
        let pair = simple(Type::Object).property("budget_ns", time()).property("period_ns", time());
        let pair = pair.required("budget_ns").required("period_ns");
        done(pair.description(Some("CPU time that may be used in every period")))
    }
}

impl ToSchema for Reservation {
    fn name() -> Cow<'static, str> {
        "Reservation".into()
    }
}

impl PartialSchema for Window {
    fn schema() -> RefOr<Schema> {
        let number = simple(Type::Integer).minimum(Some(0)).maximum(Some(Window::MAX as f64)).build();
        let pair = ArrayBuilder::new().items(number).min_items(Some(2)).max_items(Some(2));
        let pair = pair.description(Some("[x, y]: at most x of every y periods may be missed; x < y <= 255"));
        RefOr::T(Schema::Array(pair.build()))
    }
}

impl ToSchema for Window {
    fn name() -> Cow<'static, str> {
        "Window".into()
    }
}

impl PartialSchema for Name {
    fn schema() -> RefOr<Schema> {
        let known = "1 to 64 of a-z A-Z 0-9 . _ -, beginning with a letter or a digit";
        done(simple(Type::String).description(Some(known)).examples(["video", "cam-1.left"]))
    }
}

impl ToSchema for Name {
    fn name() -> Cow<'static, str> {
        "Name".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nanos;

    fn kind<T: PartialSchema>() -> String {
        serde_json::to_value(T::schema()).unwrap()["type"].as_str().unwrap().to_owned()
    }

    #[test]
    fn the_schema_matches_the_serialized_form() {
        assert_eq!(kind::<Share>(), "number");
        assert_eq!(kind::<PredictorSpec>(), "string");
        assert_eq!(kind::<Name>(), "string");
        assert_eq!(kind::<Reservation>(), "object");
        assert_eq!(kind::<Nanos>(), "integer");
        assert_eq!(kind::<Window>(), "array");
    }
}
