//! Every kept input holds its target's properties, and so do the first mutations of each corpus.

use fairgate_fuzz::{check, corpus, mutate::Mutator, targets::TARGETS};

/// Mutations of each target: few, so that the test takes seconds. `.ci/run fuzz` tries more.
const MUTATIONS: usize = 200;

#[test]
fn every_kept_input_and_some_mutations_hold_the_properties() {
    let try_all = || {
        let seed = std::env::var("FAIRGATE_SEED").map_or(1, |seed| seed.parse().unwrap());
        for target in TARGETS {
            let kept = corpus::read(target).unwrap();
            assert!(!kept.is_empty(), "{} has no corpus", target.name);
            let mut inputs = Vec::new();
            for (path, data) in kept {
                if let Err(panic) = check(target, &data) {
                    panic!("{}: {panic}", path.display());
                }
                inputs.push(data);
            }
            let mut mutator = Mutator::new(seed, target.dictionary);
            for number in 1..=MUTATIONS {
                let data = mutator.draw(&inputs);
                if let Err(panic) = check(target, &data) {
                    let path = corpus::write("artifacts", target, "crash-", &data).unwrap();
                    let path = path.display();
                    panic!(
                        "{}, FAIRGATE_SEED={seed}, mutation {number} ({path}): {panic}",
                        target.name
                    );
                }
            }
        }
    };
    // With the stack that a gateway's threads have.
    let thread = fairgate_base::stack::thread("corpora".to_owned());
    if let Err(panic) = thread.spawn(try_all).unwrap().join() {
        std::panic::resume_unwind(panic);
    }
}
