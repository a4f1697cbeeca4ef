//! How near the shares of a fleet are to those of one gateway that has all seats.

use fairgate_core::fairness::jain_index;

use super::{ClientGain, FleetWorld, SeatDivision, run::play};

/// One world, compared with the ideal.
#[derive(Clone, Debug)]
pub struct FairnessFigures {
    /// What each client got, of what it gets of one gateway that has all seats.
    pub parts: Vec<f64>,
    /// Jain's index of these parts.
    pub jain: f64,
    /// The largest part by which a client is off its ideal.
    pub worst_error: f64,
    /// Seats in use, of those in use at one gateway that has all.
    pub used: f64,
}

/// Compares what clients got with `ideal`, what one gateway gave them.
fn figures(got: &[ClientGain], ideal: &[ClientGain]) -> FairnessFigures {
    let parts = got.iter().zip(ideal);
    let parts: Vec<f64> = parts.map(|(got, ideal)| got.seats / ideal.seats).collect();
    let sum = |gains: &[ClientGain]| gains.iter().map(|gain| gain.seats).sum::<f64>();
    let errors = parts.iter().map(|part| (part - 1.0).abs());
    FairnessFigures {
        jain: jain_index(parts.iter().copied()).unwrap_or(0.0),
        worst_error: errors.fold(0.0, f64::max),
        used: sum(got) / sum(ideal),
        parts,
    }
}

/// Plays the world under each division, and compares it with one gateway.
pub fn compare<const N: usize>(
    world: &FleetWorld,
    divisions: [SeatDivision; N],
) -> [FairnessFigures; N] {
    let ideal = play(&world.with_one_gateway(), SeatDivision::Equal);
    divisions.map(|division| figures(&play(world, division), &ideal))
}

/// The worst, the median and the best of a figure over worlds.
#[derive(Clone, Copy, Debug)]
pub struct FigureRange {
    /// The least.
    pub least: f64,
    /// The one in the middle.
    pub median: f64,
    /// The greatest.
    pub greatest: f64,
}

/// The figures of many worlds under one division.
#[derive(Clone, Copy, Debug)]
pub struct FairnessSummary {
    /// Of [`FairnessFigures::jain`].
    pub jain: FigureRange,
    /// Of [`FairnessFigures::worst_error`].
    pub worst_error: FigureRange,
    /// Of [`FairnessFigures::used`].
    pub used: FigureRange,
}

impl FairnessSummary {
    /// The figures of the division at `place` of what [`compare`] returned for each world.
    ///
    /// # Panics
    ///
    /// If there is no world.
    pub fn of<const N: usize>(worlds: &[[FairnessFigures; N]], place: usize) -> Self {
        let spread = |read: fn(&FairnessFigures) -> f64| {
            let mut values: Vec<f64> = worlds.iter().map(|world| read(&world[place])).collect();
            values.sort_by(f64::total_cmp);
            FigureRange {
                least: values[0],
                median: values[values.len() / 2],
                greatest: values[values.len() - 1],
            }
        };
        Self {
            jain: spread(|world| world.jain),
            worst_error: spread(|world| world.worst_error),
            used: spread(|world| world.used),
        }
    }
}
