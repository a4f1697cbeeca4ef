//! Entry points through which fuzz targets reach private functions.

use fairgate_apihttp::posted::PostOptions;
use fairgate_disruption::procedure::request::EvictionRequest;
use fairgate_objects::codec::{BodyFormat, FieldValidation};

use crate::{
    body::{self, BodyRefusal},
    path::PodPlace,
};

/// Reads the body of a request to evict the pod `p` of the namespace `ns`. With `strict` set, unknown fields are an
/// error; otherwise there are warnings about them. The error is the message that the client gets.
pub fn read_eviction(
    format: BodyFormat,
    query_dry_run: &[String],
    strict: bool,
    body: &[u8],
) -> (Result<EvictionRequest, String>, Vec<String>) {
    let options = PostOptions {
        format,
        dry_run: query_dry_run.to_vec(),
        validation: if strict {
            FieldValidation::Strict
        } else {
            FieldValidation::Warn
        },
    };
    let place = PodPlace {
        namespace: "ns".to_owned(),
        pod: "p".to_owned(),
    };
    let decoded = body::decode(&options, &place, body);
    let request = decoded.request.map_err(|refusal| match refusal {
        BodyRefusal::Undecodable(error) => error.message,
        BodyRefusal::Eviction(refusal) => refusal.to_string(),
    });
    (request, decoded.warnings)
}
