//! The examples run to their end.

#[path = "../../examples/embed.rs"]
mod embed;
#[path = "../../examples/hosted_client.rs"]
mod hosted_client;
#[path = "../../examples/own_layer.rs"]
mod own_layer;
#[path = "../../examples/two_flows.rs"]
mod two_flows;

#[test]
fn the_core_runs_in_virtual_time() {
    two_flows::main();
}

#[test]
fn a_gateway_runs_inside_another_program() {
    embed::main().unwrap();
}

#[test]
fn a_custom_layer_sees_each_call() {
    own_layer::main().unwrap();
}

#[test]
fn kube_rs_works_against_the_hosted_api() {
    hosted_client::main().unwrap();
}
