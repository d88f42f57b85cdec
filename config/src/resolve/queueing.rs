//! Crossbar, ECN and PFC.
//!
//! The sections become a [`CrossbarConfig`], an [`EcnConfig`] and a [`PfcConfig`]; contradictions between their
//! thresholds are refused. Percentages of the queue's capacity become bytes here.
//!
//! Source: docs/spec/pipeline.md §2, §6, §8, §9.

use weft_dataplane::config::{
    BufferConfig, CrossbarConfig, EcnConfig, PfcConfig, PfcMode, PortConfig, PriMaps, Sharing,
};
use weft_dataplane::islip::Discipline;
use weft_dataplane::pfc::default_classes;
use weft_dataplane::time::Span;
use weft_dataplane::types::{Alpha, PerPri, Pri, PriSet};

use super::{Place, Problem, Resolver, Timing, Value, to_u32, to_usize};
use crate::choice::{DisciplineName, PfcModeName};
use crate::table::key;

impl Resolver<'_> {
    pub(super) fn crossbar(&mut self) -> CrossbarConfig {
        const HERE: &str = "crossbar";
        let weights = self.get(key!(HERE, "weights")).unwrap_or(Value::Int(1));
        let place = self.place(key!(HERE, "weights"));
        let read = |value: &Value| u32::try_from(value.as_int()?).ok();
        let weights = self.per_pri(&weights, &place, "crossbar.weights", 1, read);
        // Live, a host's super-frame of 64 KiB is split into 46 frames of full size at receive. They stay in one
        // burst, so that they can leave as one super-frame again.
        let (burst, room) = match self.timing {
            Timing::Live => (64, 64),
            Timing::Virtual => (1, 32),
        };
        self.derived.insert(key!(HERE, "burst").slot(0), Value::Int(burst));
        self.derived.insert(key!(HERE, "egress_queue_frames").slot(0), Value::Int(room));
        let room = self.int(key!(HERE, "egress_queue_frames")).unwrap_or(room.unsigned_abs());
        CrossbarConfig {
            iterations: to_u32(self.int(key!(HERE, "iterations")).unwrap_or(2)),
            discipline: match self.choice(key!(HERE, "discipline")) {
                DisciplineName::Weighted => Discipline::Weighted(weights),
                DisciplineName::Strict => Discipline::Strict,
            },
            speedup: to_u32(self.int(key!(HERE, "speedup")).unwrap_or(2)),
            wire_overhead: true,
            burst: to_usize(self.int(key!(HERE, "burst")).unwrap_or(burst.unsigned_abs())),
            egress_queue_frames: to_usize(room),
        }
    }

    /// PFC without the depths of mode `egress-queue`, which [`Self::pfc_mode`] adds once the buffer is known.
    pub(super) fn pfc(&mut self, maps: &PriMaps) -> PfcConfig {
        const HERE: &str = "pfc";
        let (value, place) =
            (self.get(key!(HERE, "pfc_priorities")), self.place(key!(HERE, "pfc_priorities")));
        let lossless = self.pri_list(value.as_ref(), &place, "pfc.pfc_priorities");
        let lossless: PriSet = lossless.into_iter().map(Pri::from_low_bits).collect();
        let enabled = self.flag(key!(HERE, "pfc_enabled"));
        let classes = self.classes(maps, if enabled { lossless } else { PriSet::EMPTY });
        let ms = |key| Span::from_ms(self.int(key).unwrap_or(0));
        PfcConfig {
            enabled,
            lossless,
            classes,
            mode: PfcMode::IngressPg,
            watchdog_detect: ms(key!(HERE, "watchdog_detect_ms")),
            watchdog_restore: ms(key!(HERE, "watchdog_restore_ms")),
            watchdog_action: self.choice(key!(HERE, "watchdog_action")),
        }
    }

    /// The classes that a PAUSE names, by priority, as bits.
    fn classes(&mut self, maps: &PriMaps, lossless: PriSet) -> PerPri<u8> {
        const KEY: &str = "pfc.pri_to_pfc";
        let place = self.place_of(&[
            key!("pfc", "pri_to_pfc"),
            key!("pfc", "pfc_priorities"),
            key!("classify", "pcp_to_pri"),
        ]);
        let default = default_classes(&maps.pcp_to_pri);
        let classes = match self.get(key!("pfc", "pri_to_pfc")) {
            None => default,
            Some(sets) => self.per_pri(&sets, &place, KEY, 0, |set| {
                let classes = set.members().iter().filter_map(Value::as_int);
                Some(classes.fold(0, |set, class| set | 1_u8 << (class & 7)))
            }),
        };
        let shown = Pri::ALL.iter().take(self.pris).map(|&pri| {
            let class = |class| (classes[pri] >> class & 1 != 0).then_some(Value::Int(class));
            Value::List((0..8).filter_map(class).collect())
        });
        self.derived.insert(key!("pfc", "pri_to_pfc").slot(0), Value::List(shown.collect()));
        // A peer pauses by class: with one class for two priorities, the release of one would let both be sent.
        let mut taken: [Option<Pri>; 8] = [None; 8];
        // Lossy priorities never ask for PAUSE, so their classes are not checked.
        for pri in lossless.iter() {
            if classes[pri] == 0 {
                let message =
                    format!("expected a class for lossless priority {}, found none", pri.get());
                self.refuse(place.clone(), KEY, message);
            }
            for (class, slot) in taken.iter_mut().enumerate() {
                if classes[pri] >> class & 1 == 0 {
                    continue;
                }
                if let Some(other) = slot.replace(pri) {
                    let message = format!(
                        "expected each class at one lossless priority, found {class} at {} and {}",
                        other.get(),
                        pri.get()
                    );
                    self.refuse(place.clone(), KEY, message);
                }
            }
        }
        classes
    }

    /// Adds the mode to `pfc`; thresholds are percentages of `capacity`, in bytes.
    pub(super) fn pfc_mode(&mut self, mut pfc: PfcConfig, capacity: u64) -> PfcConfig {
        let [xoff, xon] = [key!("pfc", "pfc_threshold"), key!("pfc", "pfc_release")]
            .map(|key| self.int(key).unwrap_or(0));
        if xon > xoff {
            let place = self.place_of(&[key!("pfc", "pfc_release"), key!("pfc", "pfc_threshold")]);
            let message = format!("expected at most pfc_threshold, {xoff}, found {xon}");
            self.refuse(place, "pfc.pfc_release", message);
        }
        if self.choice::<PfcModeName>(key!("pfc", "mode")) == PfcModeName::EgressQueue {
            pfc.mode = PfcMode::EgressQueue {
                xoff_bytes: percent(capacity, xoff),
                xon_bytes: percent(capacity, xon),
            };
        }
        pfc
    }

    pub(super) fn ecn(&mut self, capacity: u64, pfc: &PfcConfig) -> EcnConfig {
        let keys = [key!("ecn", "ecn_threshold_low"), key!("ecn", "ecn_threshold_high")];
        let [low, high] = keys.map(|key| self.int(key).unwrap_or(0));
        if low > high {
            let place = self.place_of(&keys);
            let message = format!("expected at most ecn_threshold_high, {high}, found {low}");
            self.refuse(place, "ecn.ecn_threshold_low", message);
        }
        let enabled = self.flag(key!("ecn", "ecn_enabled"));
        let xoff = self.int(key!("pfc", "pfc_threshold")).unwrap_or(0);
        let by_queue = matches!(pfc.mode, PfcMode::EgressQueue { .. });
        if enabled && pfc.enabled && by_queue && high > xoff {
            let place = self.place_of(&[
                key!("ecn", "ecn_threshold_high"),
                key!("pfc", "pfc_threshold"),
                key!("pfc", "mode"),
            ]);
            let message = format!(
                "expected at most pfc.pfc_threshold, {xoff}, with pfc.mode egress-queue, found {high}: marks are to come before PAUSE"
            );
            self.refuse(place, "ecn.ecn_threshold_high", message);
        }
        EcnConfig {
            enabled,
            low_bytes: percent(capacity, low),
            high_bytes: percent(capacity, high),
            max_percent: self
                .int(key!("ecn", "max_percent"))
                .and_then(|percent| u8::try_from(percent).ok())
                .unwrap_or(100),
            mark: self.choice(key!("ecn", "mark")),
        }
    }

    /// Warns where PAUSE would come before the first mark. With PAUSE decided by ingress group, the worst case is an
    /// input that fills all outputs evenly: it reaches XOFF with the least in each queue.
    pub(super) fn warn_about_order(
        &mut self,
        buffer: &BufferConfig,
        ports: &[PortConfig],
        pfc: &PfcConfig,
        ecn: &EcnConfig,
    ) {
        let cell = u64::from(buffer.cell_bytes);
        // No frame leaves by its input.
        let outputs = (ports.len() as u64).saturating_sub(1).max(1);
        let asks = ecn.enabled && pfc.enabled && pfc.mode == PfcMode::IngressPg;
        if !asks || buffer.sharing == Sharing::Static {
            return;
        }
        let headroom: u64 = buffer
            .headroom_cells
            .iter()
            .zip(ports)
            .map(|(&cells, port)| if port.pfc { u64::from(cells) } else { 0 })
            .sum();
        let lossless = pfc.lossless.len() as u64;
        let reserve = u64::from(buffer.pg_reserve_cells);
        let fixed = headroom * lossless + reserve * lossless * ports.len() as u64;
        let shared = u64::from(buffer.total_cells).saturating_sub(fixed);
        for pri in pfc.lossless.iter() {
            // used = S + alpha (shared - (used - S)), so used - S = alpha / (1 + alpha) shared.
            let alpha = u128::from(buffer.alpha[pri].parts());
            let drawn = u128::from(shared) * alpha / (u128::from(Alpha::ONE.parts()) + alpha);
            let xoff = reserve + u64::try_from(drawn).unwrap_or(shared);
            let depth = xoff * cell / outputs;
            if depth < ecn.low_bytes {
                let place =
                    self.place_of(&[key!("ecn", "ecn_threshold_low"), key!("buffer", "dt_alpha")]);
                let message = format!(
                    "an input that fills {outputs} outputs evenly at priority {} is paused at {depth} bytes in each queue, before the first mark at {}",
                    pri.get(),
                    ecn.low_bytes
                );
                // With defaults alone there is no place: the mode is the key to change, if it is set.
                let place =
                    if place == Place::Default { self.place(key!("pfc", "mode")) } else { place };
                let key = "ecn.ecn_threshold_low".to_owned();
                self.warnings.push(Problem { place, key, message });
            }
        }
    }
}

pub(super) const fn percent(base: u64, percent: u64) -> u64 {
    // Exact, and without the product of both, which could overflow.
    base / 100 * percent + base % 100 * percent / 100
}
