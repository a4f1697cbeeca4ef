//! Shuffle sharding: dealing each flow a hand of queues.
//!
//! A hand is a pseudo-random subset of a level's queues, the same for every request of a flow. Two
//! flows seldom hold the same hand, so a heavy flow fills its own queues and leaves every other flow
//! at least one that it does not touch.
//!
//! Not here: which card of a hand a request takes (that depends on the queues), and the flow's hash.
//!
//! Source: KEP-1040, "Assignment to a Queue".

use std::ops::Deref;

/// The most cards a legal hand can have.
pub(crate) const MAX_HAND: usize = 15;

/// Bits of a flow's hash that one deal may use; the other four keep the deal close to uniform.
pub(crate) const MAX_ENTROPY_BITS: u32 = 60;

/// The most queues a dealer deals from.
pub(crate) const MAX_DECK: u32 = 1 << 26;

/// Why hands of this size cannot be dealt from this deck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages name the fields")]
pub enum ShardError {
    /// There is nothing to deal.
    #[error("queues is 0; it must be at least 1")]
    NoQueues,
    /// Nothing would be dealt.
    #[error("handSize is 0; it must be at least 1")]
    EmptyHand,
    /// A hand cannot hold more queues than there are.
    #[error("handSize {hand_size} exceeds queues {queues}; lower handSize or raise queues")]
    HandExceedsQueues { queues: u32, hand_size: u32 },
    /// The deck is beyond `MAX_DECK`.
    #[error("queues {queues} exceeds {MAX_DECK}; lower queues")]
    TooManyQueues { queues: u32 },
    /// A deal would use more than `MAX_ENTROPY_BITS` of the hash.
    #[error(
        "a deal of {hand_size} out of {queues} queues needs {bits} bits of a flow's hash, and \
         {MAX_ENTROPY_BITS} are the most; lower handSize or queues"
    )]
    TooFewBits {
        queues: u32,
        hand_size: u32,
        bits: u32,
    },
}

/// Bits of hash that dealing `hand_size` out of `queues` uses: `ceil(log2(queues) * hand_size)`.
///
/// Exact up to 127; 128 means everything above.
pub(crate) fn entropy_bits(queues: u32, hand_size: u32) -> u32 {
    let deals = u128::from(queues).saturating_pow(hand_size);
    if deals == u128::MAX {
        return u128::BITS;
    }
    u128::BITS - deals.saturating_sub(1).leading_zeros()
}

/// Deals hands of one size out of one deck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dealer {
    queues: u32,
    hand_size: u32,
}

impl Dealer {
    /// Makes a dealer of hands of `hand_size` distinct queues out of `queues`.
    ///
    /// One deal costs `O(hand_size²)` and allocates nothing.
    ///
    /// # Errors
    ///
    /// Every [`ShardError`]; the checks run in the order in which the variants are listed.
    pub fn new(queues: u32, hand_size: u32) -> Result<Self, ShardError> {
        if queues == 0 {
            return Err(ShardError::NoQueues);
        }
        if hand_size == 0 {
            return Err(ShardError::EmptyHand);
        }
        if hand_size > queues {
            return Err(ShardError::HandExceedsQueues { queues, hand_size });
        }
        if queues > MAX_DECK {
            return Err(ShardError::TooManyQueues { queues });
        }
        let bits = entropy_bits(queues, hand_size);
        // A deck of one deals no bits at all; the check above keeps its hand at one card.
        if bits > MAX_ENTROPY_BITS {
            return Err(ShardError::TooFewBits {
                queues,
                hand_size,
                bits,
            });
        }
        debug_assert!(hand_size as usize <= MAX_HAND, "60 bits hold 15 cards");
        Ok(Self { queues, hand_size })
    }

    /// Deals the hand of the flow of this hash: distinct queue numbers, below the number of queues.
    pub fn deal(&self, hash: u64) -> Hand {
        let mut hand = Hand {
            cards: [0; MAX_HAND],
            len: self.hand_size as usize,
        };
        self.deal_into(hash, &mut hand.cards[..self.hand_size as usize]);
        hand
    }

    /// How many cards a hand has.
    pub(crate) const fn hand_size(self) -> u32 {
        self.hand_size
    }

    /// The card at one place of the hand of the flow of this hash, the first at 0. Takes fewer steps than to deal all.
    ///
    /// # Panics
    ///
    /// If the hand has no such place.
    pub(crate) fn card(self, hash: u64, place: usize) -> u32 {
        let mut remainders = [0; MAX_HAND];
        self.draw(hash, &mut remainders[..=place]);
        let [earlier @ .., drawn] = &remainders[..=place] else {
            return 0;
        };
        among_all(*drawn, earlier)
    }

    /// Deals into `cards` the first `cards.len()` cards of the hand, at most a whole hand.
    ///
    /// Cards beyond the hand are left as they are.
    pub(crate) fn deal_into(self, hash: u64, cards: &mut [u32]) {
        let count = cards.len().min(self.hand_size as usize);
        let mut remainders = [0_u32; MAX_HAND];
        self.draw(hash, &mut remainders[..count]);
        for (i, slot) in cards[..count].iter_mut().enumerate() {
            *slot = among_all(remainders[i], &remainders[..i]);
        }
    }

    /// Draws the first cards of a hand, each as its place among the queues that are not dealt yet.
    fn draw(self, hash: u64, remainders: &mut [u32]) {
        let mut rest = hash;
        let mut left = self.queues;
        for remainder in remainders {
            #[expect(clippy::cast_possible_truncation, reason = "less than `left`")]
            let drawn = (rest % u64::from(left)) as u32;
            *remainder = drawn;
            rest /= u64::from(left);
            left -= 1;
        }
    }
}

/// The queue that is `drawn` among those not dealt yet: steps over those that are.
fn among_all(drawn: u32, earlier: &[u32]) -> u32 {
    let step = |card, &earlier| if card >= earlier { card + 1 } else { card };
    earlier.iter().rev().fold(drawn, step)
}

/// The queues dealt to one flow; a slice of distinct queue numbers.
#[derive(Clone, Copy, Debug)]
pub struct Hand {
    cards: [u32; MAX_HAND],
    len: usize,
}

impl Hand {
    /// The cards, in the order dealt.
    pub fn as_slice(&self) -> &[u32] {
        &self.cards[..self.len]
    }
}

impl Deref for Hand {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        self.as_slice()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hand(queues: u32, hand_size: u32, hash: u64) -> Vec<u32> {
        Dealer::new(queues, hand_size).unwrap().deal(hash).to_vec()
    }

    #[test]
    fn one_card_is_that_of_the_whole_hand() {
        for (queues, hand_size) in [(1, 1), (2, 2), (16, 4), (128, 6), (16, 15)] {
            let dealer = Dealer::new(queues, hand_size).unwrap();
            for hash in [0, 1, u64::MAX, 0xf4de_3bd4_2ccd_f6b7, 0x987a_b3ff_9c0b_346e] {
                let cards = (0..hand_size as usize).map(|place| dealer.card(hash, place));
                assert_eq!(dealer.deal(hash).to_vec(), cards.collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn hands_of_named_flows_are_the_originals() {
        type Row = (u64, [u32; 6], [u32; 6], [u32; 4]);
        let rows: [Row; 7] = [
            (
                0xf4de_3bd4_2ccd_f6b7,
                [55, 62, 126, 125, 105, 1],
                [55, 56, 51, 36, 11, 5],
                [7, 14, 0, 3],
            ),
            (
                0x5297_14ad_a962_409c,
                [28, 42, 66, 34, 23, 24],
                [28, 21, 1, 32, 3, 7],
                [12, 1, 0, 15],
            ),
            (
                0xba4d_d08b_d6ad_597f,
                [127, 66, 18, 15, 64, 74],
                [63, 43, 6, 59, 8, 11],
                [15, 13, 8, 4],
            ),
            (
                0x1b14_9fd6_70be_8358,
                [88, 53, 21, 91, 7, 17],
                [24, 23, 50, 62, 12, 43],
                [8, 3, 7, 2],
            ),
            (
                0xc5de_3c89_e5a0_a139,
                [57, 103, 71, 102, 95, 91],
                [57, 29, 61, 56, 39, 18],
                [9, 15, 7, 3],
            ),
            (
                0x91eb_f646_1738_4083,
                [3, 77, 68, 105, 81, 43],
                [3, 35, 15, 44, 50, 25],
                [3, 8, 4, 15],
            ),
            (
                0x987a_b3ff_9c0b_346e,
                [110, 115, 6, 122, 92, 14],
                [46, 53, 5, 47, 33, 18],
                [14, 3, 12, 11],
            ),
        ];
        for (hash, of_128, of_64, of_16) in rows {
            assert_eq!(hand(128, 6, hash), of_128, "{hash:#x} of 128");
            assert_eq!(hand(64, 6, hash), of_64, "{hash:#x} of 64");
            assert_eq!(hand(16, 4, hash), of_16, "{hash:#x} of 16");
        }
    }

    #[test]
    fn hands_of_plain_hashes_are_the_originals() {
        let rows: [(u64, u32, u32, &[u32]); 11] = [
            (0, 128, 6, &[0, 1, 2, 3, 4, 5]),
            (1, 128, 6, &[1, 0, 2, 3, 4, 5]),
            (
                12_345_678_901_234_567_890,
                128,
                6,
                &[82, 108, 124, 106, 90, 52],
            ),
            (1_001_001_001, 9, 3, &[4, 6, 0]),
            (1_001_001_001, 9, 1, &[4]),
            (2_002_002_002, 9, 3, &[8, 2, 1]),
            (2_002_002_002, 9, 1, &[8]),
            (400_900_100_100, 8, 3, &[4, 7, 5]),
            (300_900_200_200, 8, 3, &[0, 6, 1]),
            (u64::MAX, 64, 6, &[63, 15, 55, 23, 31, 2]),
            (u64::MAX, 1024, 6, &[1023, 15, 497, 420, 22, 243]),
        ];
        for (hash, queues, hand_size, expected) in rows {
            assert_eq!(
                hand(queues, hand_size, hash),
                expected,
                "{hash} {queues}/{hand_size}"
            );
        }
    }

    #[test]
    fn hands_of_the_queuing_scenarios_are_the_originals() {
        let rows: [(u64, [u32; 7]); 7] = [
            (10_010_010_010_010, [26, 34, 49, 6, 39, 27, 12]),
            (20_020_020_020_020, [52, 3, 34, 14, 13, 56, 25]),
            (40_040_040_040_040, [40, 7, 4, 29, 26, 48, 51]),
            (50_050_050_050_050, [2, 42, 53, 34, 0, 12, 63]),
            (60_060_060_060_060, [28, 11, 39, 43, 38, 37, 10]),
            (70_070_070_070_070, [54, 44, 22, 49, 12, 2, 25]),
            (90_090_090_090_090, [42, 49, 57, 63, 24, 56, 46]),
        ];
        for (hash, expected) in rows {
            assert_eq!(hand(64, 7, hash), expected, "{hash}");
        }
    }

    #[test]
    fn an_impossible_deal_is_refused() {
        assert_eq!(Dealer::new(0, 3), Err(ShardError::NoQueues));
        assert_eq!(Dealer::new(100, 0), Err(ShardError::EmptyHand));
        assert_eq!(
            Dealer::new(100, 101),
            Err(ShardError::HandExceedsQueues {
                queues: 100,
                hand_size: 101
            })
        );
        assert_eq!(
            Dealer::new(1 << 27, 2),
            Err(ShardError::TooManyQueues { queues: 1 << 27 })
        );
        assert_eq!(
            Dealer::new(512, 8),
            Err(ShardError::TooFewBits {
                queues: 512,
                hand_size: 8,
                bits: 72
            })
        );
        assert!(Dealer::new(1024, 6).is_ok());
        assert_eq!(entropy_bits(1024, 6), 60);
    }

    #[test]
    fn the_largest_legal_hand_follows_the_entropy_rule() {
        let rows = [
            (1, 1),
            (2, 2),
            (4, 4),
            (8, 8),
            (15, 15),
            (16, 15),
            (32, 12),
            (64, 10),
            (100, 9),
            (128, 8),
            (256, 7),
            (512, 6),
            (1024, 6),
            (4096, 5),
            (10_000_000, 2),
        ];
        for (queues, largest) in rows {
            assert!(
                Dealer::new(queues, largest).is_ok(),
                "{queues} takes {largest}"
            );
            assert!(
                Dealer::new(queues, largest + 1).is_err(),
                "{queues} takes no {largest} + 1"
            );
        }
    }

    #[test]
    fn the_cards_of_a_hand_are_distinct_and_in_the_deck() {
        for (queues, hand_size) in [
            (4, 4),
            (8, 8),
            (10, 10),
            (12, 12),
            (15, 15),
            (128, 8),
            (256, 7),
            (512, 6),
        ] {
            let mut hash = 0x9e37_79b9_7f4a_7c15_u64;
            for _ in 0..2000 {
                hash = hash
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let mut cards = hand(queues, hand_size, hash);
                cards.sort_unstable();
                cards.dedup();
                assert_eq!(cards.len(), hand_size as usize, "{queues}/{hand_size}");
                assert!(cards.iter().all(|&card| card < queues));
            }
        }
    }

    #[test]
    fn a_short_slice_gets_the_first_cards_and_a_long_one_keeps_its_tail() {
        let dealer = Dealer::new(128, 6).unwrap();
        let mut short = [0; 2];
        dealer.deal_into(1, &mut short);
        assert_eq!(short, [1, 0]);
        let mut long = [77; 8];
        dealer.deal_into(1, &mut long);
        assert_eq!(long, [1, 0, 2, 3, 4, 5, 77, 77]);
    }

    /// Deals every hash below `hashes` and checks how often each set of cards comes up.
    fn check_uniform(queues: u32, hand_size: u32, hashes: u64) {
        let ordered: u64 = (0..hand_size).map(|i| u64::from(queues - i)).product();
        let orders: u64 = (1..=u64::from(hand_size)).product();
        let dealer = Dealer::new(queues, hand_size).unwrap();
        let mut counts = vec![0_u32; (queues as usize).pow(hand_size)];
        for hash in 0..hashes {
            let mut hand = dealer.deal(hash);
            let cards = &mut hand.cards[..hand_size as usize];
            cards.sort_unstable();
            let at = cards
                .iter()
                .fold(0, |at, &card| at * queues as usize + card as usize);
            counts[at] += 1;
        }
        let sets = counts.iter().filter(|&&count| count > 0).count() as u64;
        assert_eq!(sets, ordered / orders, "every set of cards comes up");
        let least = orders * (hashes / ordered);
        let most = orders * hashes.div_ceil(ordered);
        for &count in counts.iter().filter(|&&count| count > 0) {
            assert!((least..=most).contains(&u64::from(count)), "{count}");
        }
    }

    #[test]
    fn three_of_64_come_up_evenly() {
        check_uniform(64, 3, 1 << (18 + 4));
    }

    #[test]
    fn three_of_128_come_up_evenly() {
        check_uniform(128, 3, 128 * 127 * 126);
    }

    #[test]
    fn four_of_50_come_up_evenly() {
        check_uniform(50, 4, 50 * 49 * 48 * 47);
    }
}
