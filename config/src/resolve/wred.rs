//! Early drops of lossy frames that ECN does not mark.
//!
//! Each priority may have a [`WredConfig`]. Thresholds that are not set are those of the ECN marks, so that a frame
//! is dropped where another one would be marked. Percentages of the queue's capacity become bytes here.
//!
//! Source: docs/spec/pipeline.md §4; RFC 3168 section 5 (drops in place of marks).

use weft_dataplane::config::{PfcConfig, WredConfig};
use weft_dataplane::types::{PerPri, Pri, PriSet};

use super::queueing::percent;
use super::{Resolver, Value};
use crate::table::{Key, key};

const HERE: &str = "wred";
const LOW: Key = key!(HERE, "wred_threshold_low");
const HIGH: Key = key!(HERE, "wred_threshold_high");

impl Resolver<'_> {
    /// The profile of each priority; `None` for those without early drops.
    pub(super) fn wred(&mut self, capacity: u64, pfc: &PfcConfig) -> PerPri<Option<WredConfig>> {
        let mut wred = PerPri::default();
        // A derived value is shown by `weft config show` like a setting. These keys are refused while `wred_enabled`
        // is off, so that output would be refused as a configuration.
        if !self.flag(key!(HERE, "wred_enabled")) {
            return wred;
        }
        let low = self.as_marks(LOW, key!("ecn", "ecn_threshold_low"));
        let high = self.as_marks(HIGH, key!("ecn", "ecn_threshold_high"));
        let max_percent = self.as_marks(key!(HERE, "max_percent"), key!("ecn", "max_percent"));
        let asked = self.early(pfc);
        for pri in asked.iter() {
            self.check_profile(pri, low[pri], high[pri]);
            wred[pri] = Some(WredConfig {
                low_bytes: percent(capacity, low[pri]),
                high_bytes: percent(capacity, high[pri]),
                max_percent: u8::try_from(max_percent[pri]).unwrap_or(100),
            });
        }
        wred
    }

    /// The percentage of `key` for each priority; if it is not set, that of `of_marks` in `[ecn]`.
    fn as_marks(&mut self, key: Key, of_marks: Key) -> PerPri<u64> {
        let marks = self.get(of_marks).unwrap_or(Value::Int(0));
        // Shown as derived only: what the key sets comes first.
        self.derived.insert(key.slot(0), marks.clone());
        let value = self.get(key).unwrap_or(marks);
        let place = self.place(key);
        let read = |value: &Value| u64::try_from(value.as_int()?).ok();
        self.per_pri(&value, &place, &key.path(), 0, read)
    }

    /// The priorities that have a profile: by default all lossy ones.
    fn early(&mut self, pfc: &PfcConfig) -> PriSet {
        const KEY: Key = key!(HERE, "wred_priorities");
        let lossless = if pfc.enabled { pfc.lossless } else { PriSet::EMPTY };
        let lossy = PriSet::first(self.pris).without(lossless);
        let shown = lossy.iter().map(|pri| Value::Int(pri.get().into())).collect();
        self.derived.insert(KEY.slot(0), Value::List(shown));
        let Some(set) = self.settings.at(KEY) else { return lossy };
        let (value, place) = (set.value.clone(), set.place.clone());
        let asked = self.pri_list(Some(&value), &place, "wred.wred_priorities");
        let asked: PriSet = asked.into_iter().map(Pri::from_low_bits).collect();
        if let Some(pri) = asked.and(lossless).iter().next() {
            let message = format!(
                "expected lossy priorities, found {}, whose frames PFC keeps (pfc.pfc_priorities)",
                pri.get()
            );
            self.refuse(place, "wred.wred_priorities", message);
        }
        // The problem above refuses the configuration; later checks are to see lossy priorities only.
        asked.without(lossless)
    }

    fn check_profile(&mut self, pri: Pri, low: u64, high: u64) {
        let number = pri.get();
        if low > high {
            let place = self.place_of(&[LOW, HIGH]);
            let message = format!(
                "expected at most wred_threshold_high, {high}, of priority {number}, found {low}"
            );
            self.refuse(place, "wred.wred_threshold_low", message);
        }
        // At or above the high mark every frame is dropped, and each frame counts in its queue's depth.
        if high == 0 {
            let place = self.place_of(&[HIGH, key!("ecn", "ecn_threshold_high")]);
            let message = format!(
                "expected 1 or above for priority {number}, found 0: each of its frames would be dropped"
            );
            self.refuse(place, "wred.wred_threshold_high", message);
        }
    }
}
