//! What tenants weigh together: a whole number, but for tenants that have flows at other gateways.
//!
//! Not here: what one tenant weighs ([`super`]).

/// A sum of weights of tenants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WeightSum {
    /// Of tenants whose weight is a whole number.
    pub(super) whole: u64,
    /// Of the others, in [`Self::UNIT`]ths.
    pub(super) parts: u64,
}

impl WeightSum {
    /// So many parts are a weight of 1.
    pub(super) const UNIT: u64 = 1 << 28;

    pub(super) fn add(&mut self, other: Self) {
        self.whole += other.whole;
        self.parts += other.parts;
    }

    pub(super) fn subtract(&mut self, other: Self) {
        self.whole -= other.whole;
        self.parts -= other.parts;
    }

    /// `amount` divided by it, or by 1 if it is 0; at most a sixteenth of what can be represented.
    pub(super) fn divide(self, amount: u64) -> u64 {
        if self.parts == 0 {
            return amount / self.whole.max(1);
        }
        let divided = u128::from(amount) * u128::from(Self::UNIT) / self.in_parts();
        u64::try_from(divided)
            .unwrap_or(u64::MAX)
            .min(u64::MAX / 16)
    }

    pub(super) fn times(self, amount: u64) -> u64 {
        if self.parts == 0 {
            return amount.saturating_mul(self.whole);
        }
        let product = (u128::from(amount) * self.in_parts()).div_ceil(Self::UNIT.into());
        u64::try_from(product).unwrap_or(u64::MAX)
    }

    fn in_parts(self) -> u128 {
        u128::from(self.whole) * u128::from(Self::UNIT) + u128::from(self.parts)
    }

    #[expect(clippy::cast_precision_loss, reason = "for reports")]
    pub(super) fn as_f64(self) -> f64 {
        self.whole as f64 + self.parts as f64 / Self::UNIT as f64
    }
}
