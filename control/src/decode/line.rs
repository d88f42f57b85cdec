//! A frame as one line of text, outer layers first.

use std::fmt;

use super::Decoded;

const ECN: [&str; 4] = ["not-ect", "ect1", "ect0", "ce"];

impl fmt::Display for Decoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.format.unwrap_or("malformed"))?;
        if let (Some(src), Some(dst)) = (&self.src, &self.dst) {
            write!(f, " {src} > {dst}")?;
        }
        write!(f, " len {}", self.len)?;
        if let Some(vlan) = &self.vlan {
            write!(f, " vlan {} pcp {}", vlan.vid, vlan.pcp)?;
            if vlan.dei {
                f.write_str(" dei")?;
            }
        }
        if let Some(mpls) = &self.mpls {
            write!(f, " mpls {} exp {} ttl {}", mpls.label, mpls.exp, mpls.ttl)?;
            if mpls.is_bottom {
                f.write_str(" bottom")?;
            }
        }
        if let Some(afh) = &self.afh {
            write!(f, " tc {:#04x} vc {} flow {}", afh.tc, afh.vc, afh.flow)?;
            if let Some(key_words) = afh.key_words {
                write!(f, " key_words {key_words:#04x}")?;
            }
            if let Some(xpu_id) = afh.xpu_id {
                write!(f, " xpu {xpu_id:#x}")?;
            }
        }
        if let Some(tlp) = &self.tlp {
            write!(f, " {tlp}")?;
        }
        self.fmt_ip(f)?;
        if let Some(rh) = &self.rh {
            write!(f, " rh {} psn {} qp {}", rh.opcode, rh.psn, rh.dest_qp)?;
            if rh.fack {
                f.write_str(" fack")?;
            }
            if let Some(syndrome) = rh.syndrome {
                write!(f, " syndrome {syndrome:#04x}")?;
            }
        }
        if let Some(bth) = &self.bth {
            match bth.name {
                Some(name) => write!(f, " bth {name}")?,
                None => write!(f, " bth opcode {:#04x}", bth.opcode)?,
            }
            write!(f, " psn {} qp {}", bth.psn, bth.dest_qp)?;
        }
        self.fmt_mac_control(f)?;
        if let Some(len) = self.payload_len {
            write!(f, " payload {len}")?;
        }
        if let Some(error) = &self.error {
            write!(f, " ERROR {error}")?;
        }
        Ok(())
    }
}

impl Decoded {
    fn fmt_ip(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(ip) = &self.ip else {
            return match &self.ether_type {
                Some(text)
                    if self.mac_control.is_none() && self.afh.is_none() && self.tlp.is_none() =>
                {
                    write!(f, " type {text}")
                }
                _ => Ok(()),
            };
        };
        match &self.udp {
            Some(udp) if ip.version == 6 => {
                write!(f, " [{}]:{} > [{}]:{}", ip.src, udp.sport, ip.dst, udp.dport)?;
            }
            Some(udp) => write!(f, " {}:{} > {}:{}", ip.src, udp.sport, ip.dst, udp.dport)?,
            None => write!(f, " {} > {} proto {}", ip.src, ip.dst, ip.proto)?,
        }
        let ecn = ECN.get(usize::from(ip.ecn)).copied().unwrap_or_default();
        write!(f, " dscp {} ecn {ecn}", ip.dscp)?;
        if ip.is_checksum_ok == Some(false) {
            f.write_str(" BAD IP CHECKSUM")?;
        }
        Ok(())
    }

    fn fmt_mac_control(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(control) = &self.mac_control else { return Ok(()) };
        match control.name {
            Some(name) => write!(f, " {name}")?,
            None => write!(f, " opcode {:#06x}", control.opcode)?,
        }
        for class in control.classes.iter().flatten() {
            write!(f, " class {}: {}", class.class, class.quanta)?;
        }
        if let Some(quanta) = control.quanta {
            write!(f, " quanta {quanta}")?;
        }
        if let (Some(first), Some(consumed)) = (control.first_vc, &control.consumed) {
            write!(f, " cc_update vc {first}..: {consumed:?}")?;
        }
        Ok(())
    }
}
