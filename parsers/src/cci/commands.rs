//! Every command: opcode, name, request and response.
//!
//! The table at the end has one row a command. [`Request`] and [`Response`] have a variant for each
//! row; an opcode without a row is answered with Unsupported.
//!
//! Source: docs/spec/wire-formats.md §4.2 to §4.7; CXL 3.1 tables 8-37, 7-15 and 8-204.

use core::fmt;

use super::header::{Header, ReturnCode};
use super::opcode::Opcode;
use super::wire::{Payload, Uuid, exact};
use super::{
    component, dcd, gae, generic, gfd, gfd_access, host_dc, ld, mld, notify, pbr, switch, tables,
    vcs,
};
use crate::fabric::{FastEntry, LdstEntry, Pid, ReRouterEntry};
use crate::{Field, ParseError};

/// Why a request is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// There is no such command, or its layout is not known.
    Unsupported(Opcode),
    /// The payload is too short or too long, for itself or for the counts in it.
    PayloadLength(ParseError),
    /// A field has a reserved value.
    Input(ParseError),
}

impl RequestError {
    /// Return code with which the component refuses the request.
    #[must_use]
    pub const fn return_code(self) -> ReturnCode {
        match self {
            Self::Unsupported(_) => ReturnCode::Unsupported,
            Self::PayloadLength(_) => ReturnCode::InvalidPayloadLength,
            Self::Input(_) => ReturnCode::InvalidInput,
        }
    }
}

impl From<ParseError> for RequestError {
    fn from(error: ParseError) -> Self {
        match error {
            // a length that contradicts its own counts is a fault of the payload's length, as a
            // short one is; every other value is a fault of one field
            ParseError::Short { .. } | ParseError::Value { field: Field::Length, .. } => {
                Self::PayloadLength(error)
            }
            ParseError::Value { .. } => Self::Input(error),
        }
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(opcode) => write!(f, "{opcode} is not supported"),
            Self::PayloadLength(error) => write!(f, "payload length: {error}"),
            Self::Input(error) => write!(f, "input: {error}"),
        }
    }
}

impl core::error::Error for RequestError {}

/// Reads a payload for `$make`, which takes one, or is all there is.
macro_rules! read {
    ($payload:ident, $make:path) => {
        exact($payload, 0).map(|()| $make)
    };
    ($payload:ident, $make:path, $ty:ty) => {
        <$ty as Payload>::parse($payload).map($make)
    };
}

/// Writes the variant's payload; a variant without one writes 0 bytes.
macro_rules! write_to {
    ($out:ident) => {
        Some(0)
    };
    ($out:ident, $value:ident: $ty:ty) => {
        <$ty as Payload>::emit($value, $out)
    };
}

/// Binds the variant's payload to a name; empty for a variant without one.
macro_rules! bind {
    ($value:ident: $ty:ty) => {
        $value
    };
}

/// One half of all commands, requests or responses: an enum with the payload of each, its reader
/// and its writer.
macro_rules! payloads {
    (
        $(#[$meta:meta])* $half:ident, $(#[$parse_meta:meta])* parse;
        $($code:literal $opcode:ident $variant:ident $name:literal $(($ty:ty))?;)*
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $half<'a> {
            $(
                #[doc = concat!($name, ".")]
                $variant $(($ty))?,
            )*
        }

        impl<'a> $half<'a> {
            $(#[$parse_meta])*
            pub fn parse(opcode: Opcode, payload: &'a [u8]) -> Result<Self, RequestError> {
                let parsed = match opcode.0 {
                    $($code => read!(payload, Self::$variant $(, $ty)?),)*
                    _ => return Err(RequestError::Unsupported(opcode)),
                };
                parsed.map_err(RequestError::from)
            }

            /// Opcode of this command.
            #[must_use]
            pub const fn opcode(&self) -> Opcode {
                match self {
                    $(Self::$variant { .. } => Opcode::$opcode,)*
                }
            }

            /// Writes the payload to the front of `out`, reserved bits zero, and returns its length.
            ///
            /// `None` when it does not fit, or a list is longer than its count can say.
            pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
                match self {
                    $(Self::$variant $((bind!(value: $ty)))? => write_to!(out $(, value: $ty)?),)*
                }
            }
        }
    };
}

macro_rules! commands {
    (
        $($code:literal $opcode:ident $variant:ident $name:literal $(($req:ty))? -> $(($rsp:ty))?;)*
    ) => {
        impl Opcode {
            $(
                #[doc = concat!($name, ".")]
                pub const $opcode: Self = Self($code);
            )*

            /// Those that [`Request`] and [`Response`] lay out, in order.
            pub const LAID_OUT: &'static [Self] = &[$(Self::$opcode,)*];

            /// Name of the command as in the standard; `None` when it is not known.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }
        }

        payloads! {
            /// A request, by command, with its payload.
            Request,
            /// Reads the payload of a request.
            ///
            /// # Errors
            /// See [`RequestError`]; whether the command makes sense now is the component's to judge.
            parse;
            $($code $opcode $variant $name $(($req))?;)*
        }

        payloads! {
            /// A successful response, by command, with its payload.
            Response,
            /// Reads the payload of a response that says success.
            ///
            /// # Errors
            /// See [`RequestError`].
            parse;
            $($code $opcode $variant $name $(($rsp))?;)*
        }
    };
}

#[rustfmt::skip] // columns: opcode, its constant, variant, name, request, response
commands! {
    0x0001 IDENTIFY Identify "Identify" -> (generic::Identity);
    0x0002 BACKGROUND_STATUS BackgroundStatus "Background Operation Status" -> (generic::BackgroundStatus);
    0x0003 GET_RESPONSE_LIMIT GetResponseLimit "Get Response Message Limit" -> (u8);
    0x0004 SET_RESPONSE_LIMIT SetResponseLimit "Set Response Message Limit" (u8) -> (u8);
    0x0005 ABORT_BACKGROUND AbortBackground "Request Abort of Background Operation" -> ;
    0x0100 GET_EVENTS GetEvents "Get Event Records" (u8) -> (generic::EventRecords<'a>);
    0x0101 CLEAR_EVENTS ClearEvents "Clear Event Records" (generic::ClearEvents<'a>) -> ;
    0x0102 GET_EVENT_INTERRUPTS GetEventInterrupts "Get Event Interrupt Policy" -> (generic::EventInterrupts);
    0x0103 SET_EVENT_INTERRUPTS SetEventInterrupts "Set Event Interrupt Policy" (generic::EventInterrupts) -> ;
    0x0104 GET_MCTP_EVENTS GetMctpEvents "Get MCTP Event Interrupt Policy" -> (u16);
    0x0105 SET_MCTP_EVENTS SetMctpEvents "Set MCTP Event Interrupt Policy" (u16) -> (u16);
    0x0106 EVENT Event "Event Notification" (u16) -> ;
    0x0107 FM_NOTIFICATION FmNotification "GFD Enhanced Event Notification" (notify::FmNotification) -> ;
    0x0108 HOST_NOTIFICATION HostNotification "Enhanced Event Notification" (notify::HostNotification) -> ;
    0x0109 GET_GAM_BUFFER GetGamBuffer "Get GAM Buffer" -> (notify::GamBuffer);
    0x010A SET_GAM_BUFFER SetGamBuffer "Set GAM Buffer" (notify::GamBuffer) -> ;
    0x0400 GET_SUPPORTED_LOGS GetSupportedLogs "Get Supported Logs" -> (generic::SupportedLogs<'a>);
    0x0401 GET_LOG GetLog "Get Log" (generic::GetLog) -> (generic::LogData<'a>);
    0x0700 IDENTIFY_PBR_COMPONENT IdentifyPbrComponent "Identify PBR Component" -> (component::PbrIdentity);
    0x0701 CLAIM_OWNERSHIP ClaimOwnership "Claim Ownership" (component::ClaimOwnership) -> (component::Owners);
    0x0702 READ_CDAT ReadCdat "Read CDAT" (component::ReadCdat) -> (component::Cdat<'a>);
    0x4900 IDENTIFY_GFD IdentifyGfd "Identify GFD" -> (gfd::GfdIdentity);
    0x4901 GET_GFD_STATUS GetGfdStatus "Get GFD Status" -> (gfd::GfdStatus);
    0x4902 GET_DC_REGIONS GetDcRegions "Get GFD DC Region Configuration" (gfd::GfdRange) -> (gfd::DcRegions<'a>);
    0x4903 SET_DC_REGION SetDcRegion "Set GFD DC Region Configuration" (gfd::SetDcRegion) -> ;
    0x4904 GET_GFD_EXTENTS GetGfdExtents "Get GFD DC Region Extent Lists" (dcd::GetExtents) -> (dcd::ExtentList<'a>);
    0x4905 GET_DMPS GetDmps "Get GFD DMP Configuration" (gfd::GfdRange) -> (gfd::Dmps<'a>);
    0x4906 SET_DMPS SetDmps "Set GFD DMP Configuration" (gfd::SetDmps<'a>) -> ;
    0x4907 DC_ADD DcAdd "GFD Dynamic Capacity Add" (gfd::DcAdd<'a>) -> (dcd::ExtentList<'a>);
    0x4908 DC_RELEASE DcRelease "GFD Dynamic Capacity Release" (gfd::DcRelease<'a>) -> (dcd::ExtentList<'a>);
    0x4909 DC_ADD_REFERENCE DcAddReference "GFD Dynamic Capacity Add Reference" (Uuid) -> ;
    0x490A DC_REMOVE_REFERENCE DcRemoveReference "GFD Dynamic Capacity Remove Reference" (Uuid) -> ;
    0x490B DC_LIST_TAGS DcListTags "GFD Dynamic Capacity List Tags" (gfd::GetTags) -> (gfd::Tags<'a>);
    0x490C GET_SAT GetSat "Get GFD SAT Entry" (gfd_access::SatRange) -> (gfd_access::SatEntries<'a>);
    0x490D SET_SAT SetSat "Set GFD SAT Entry" (gfd_access::SetSat<'a>) -> ;
    0x490E GET_QOS_CONTROL GetQosControl "Get GFD QoS Control" -> (gfd_access::QosControl);
    0x490F SET_QOS_CONTROL SetQosControl "Set GFD QoS Control" (gfd_access::QosControl) -> (gfd_access::QosControl);
    0x4910 GET_QOS_STATUS GetQosStatus "Get GFD QoS Status" -> (u8);
    0x4911 GET_QOS_LIMIT GetQosLimit "Get GFD QoS BW Limit" (gfd_access::LimitRange) -> (gfd_access::Limits<'a>);
    0x4912 SET_QOS_LIMIT SetQosLimit "Set GFD QoS BW Limit" (gfd_access::Limits<'a>) -> (gfd_access::Limits<'a>);
    0x4913 GET_GDT GetGdt "Get GDT Configuration" (gfd_access::GdtRange) -> (gfd_access::Gdt<'a>);
    0x4914 SET_GDT SetGdt "Set GDT Configuration" (gfd_access::SetGdt<'a>) -> ;
    0x5100 IDENTIFY_SWITCH IdentifySwitch "Identify Switch Device" -> (switch::SwitchIdentity);
    0x5101 GET_PORT_STATE GetPortState "Get Physical Port State" (switch::PortList<'a>) -> (switch::PortStates<'a>);
    0x5102 PORT_CONTROL PortControl "Physical Port Control" (switch::PortControl) -> ;
    0x5103 PPB_CONFIG PpbConfig "Send PPB CXL.io Configuration Request" (switch::PpbConfig) -> (u32);
    0x5104 GET_SV_STATE GetSvState "Get Domain Validation SV State" -> (u8);
    0x5105 SET_SV SetSv "Set Domain Validation SV" (Uuid) -> ;
    0x5106 GET_VCS_SV_STATE GetVcsSvState "Get VCS Domain Validation SV State" (u8) -> (u8);
    0x5107 GET_SV GetSv "Get Domain Validation SV" (u8) -> (Uuid);
    0x5200 GET_VCS_INFO GetVcsInfo "Get Virtual CXL Switch Info" (vcs::GetVcsInfo<'a>) -> (vcs::VcsInfos<'a>);
    0x5201 BIND_VPPB BindVppb "Bind vPPB" (vcs::BindVppb) -> ;
    0x5202 UNBIND_VPPB UnbindVppb "Unbind vPPB" (vcs::UnbindVppb) -> ;
    0x5203 GENERATE_AER GenerateAer "Generate AER Event" (vcs::GenerateAer) -> ;
    0x5300 TUNNEL Tunnel "Tunnel Management Command" (mld::TunnelRequest<'a>) -> (mld::TunnelResponse<'a>);
    0x5301 LD_CONFIG LdConfig "Send LD CXL.io Configuration Request" (mld::LdConfig) -> (u32);
    0x5302 LD_MEM LdMem "Send LD CXL.io Memory Request" (mld::LdMemRequest<'a>) -> (mld::LdMemResponse<'a>);
    0x5400 GET_LD_INFO GetLdInfo "Get LD Info" -> (ld::LdInfo);
    0x5401 GET_LD_ALLOCATIONS GetLdAllocations "Get LD Allocations" (ld::LdPage) -> (ld::LdAllocations<'a>);
    0x5402 SET_LD_ALLOCATIONS SetLdAllocations "Set LD Allocations" (ld::SetLdAllocations<'a>) -> (ld::SetLdAllocations<'a>);
    0x5403 GET_LD_QOS_CONTROL GetLdQosControl "Get QoS Control" -> (gfd_access::QosControl);
    0x5404 SET_LD_QOS_CONTROL SetLdQosControl "Set QoS Control" (gfd_access::QosControl) -> (gfd_access::QosControl);
    0x5405 GET_LD_QOS_STATUS GetLdQosStatus "Get QoS Status" -> (u8);
    0x5406 GET_LD_BANDWIDTH GetLdBandwidth "Get QoS Allocated BW" (ld::LdRange) -> (ld::LdFractions<'a>);
    0x5407 SET_LD_BANDWIDTH SetLdBandwidth "Set QoS Allocated BW" (ld::LdFractions<'a>) -> (ld::LdFractions<'a>);
    0x5408 GET_LD_LIMIT GetLdLimit "Get QoS BW Limit" (ld::LdRange) -> (ld::LdFractions<'a>);
    0x5409 SET_LD_LIMIT SetLdLimit "Set QoS BW Limit" (ld::LdFractions<'a>) -> (ld::LdFractions<'a>);
    0x5500 GET_MULTI_HEADED_INFO GetMultiHeadedInfo "Get Multi-Headed Info" (ld::LdPage) -> (ld::MultiHeadedInfo<'a>);
    0x5501 GET_HEAD_INFO GetHeadInfo "Get Head Info" (ld::LdPage) -> (ld::HeadInfos<'a>);
    0x5600 GET_DCD_INFO GetDcdInfo "Get DCD Info" -> (host_dc::DcdInfo);
    0x5601 GET_HOST_DC_REGIONS GetHostDcRegions "Get Host DC Region Configuration" (host_dc::HostRange) -> (host_dc::HostRegions<'a>);
    0x5602 SET_HOST_DC_REGION SetHostDcRegion "Set DC Region Configuration" (host_dc::SetRegion) -> ;
    0x5603 GET_EXTENTS GetExtents "Get DC Region Extent Lists" (dcd::GetExtents) -> (dcd::ExtentList<'a>);
    0x5604 INITIATE_ADD InitiateAdd "Initiate Dynamic Capacity Add" (dcd::InitiateAdd<'a>) -> ;
    0x5605 INITIATE_RELEASE InitiateRelease "Initiate Dynamic Capacity Release" (dcd::InitiateRelease<'a>) -> ;
    0x5606 ADD_REFERENCE AddReference "Dynamic Capacity Add Reference" (Uuid) -> ;
    0x5607 REMOVE_REFERENCE RemoveReference "Dynamic Capacity Remove Reference" (Uuid) -> ;
    0x5608 LIST_TAGS ListTags "Dynamic Capacity List Tags" (gfd::GetTags) -> (host_dc::HostTags<'a>);
    0x5700 IDENTIFY_PBR_SWITCH IdentifyPbrSwitch "Identify PBR Switch" -> (pbr::PbrSwitchIdentity);
    0x5701 CRAWL_OUT CrawlOut "Fabric Crawl Out" (pbr::CrawlOut<'a>) -> (mld::TunnelResponse<'a>);
    0x5702 GET_LINK_PARTNERS GetLinkPartners "Get PBR Link Partner Info" (switch::PortList<'a>) -> (pbr::LinkPartners<'a>);
    0x5703 GET_PID_TARGETS GetPidTargets "Get PID Target List" (pbr::GetPidTargets) -> (pbr::PidTargets<'a>);
    0x5704 ASSIGN_PIDS AssignPids "Configure PID Assignment" (pbr::AssignPids<'a>) -> ;
    0x5705 GET_PID_BINDING GetPidBinding "Get PID Binding" (pbr::Vppb) -> (pbr::PidBinding);
    0x5706 BIND_PID BindPid "Configure PID Binding" (pbr::BindPid) -> ;
    0x5707 GET_TABLES GetTables "Get Table Descriptors" (pbr::GetTables) -> (pbr::TableDescriptors<'a>);
    0x5708 GET_DRT GetDrt "Get DRT" (tables::RoutingRange) -> (tables::Drt<'a>);
    0x5709 SET_DRT SetDrt "Set DRT" (tables::SetDrt<'a>) -> ;
    0x570A GET_RGT GetRgt "Get RGT" (tables::RoutingRange) -> (tables::Rgt<'a>);
    0x570B SET_RGT SetRgt "Set RGT" (tables::Rgt<'a>) -> ;
    0x570C GET_LDST_CAPS GetLdstCaps "Get LDST/IDT Capabilities" (u8) -> (tables::LdstCaps);
    0x570D SET_LDST SetLdst "Set LDST/IDT Configuration" (tables::SetLdst) -> ;
    0x570E GET_LDST_SEGMENTS GetLdstSegments "Get LDST Segment Entries" (tables::EdgeRange) -> (tables::Entries<'a, Option<LdstEntry>>);
    0x570F SET_LDST_SEGMENTS SetLdstSegments "Set LDST Segment Entries" (tables::SetEntries<'a, Option<LdstEntry>>) -> ;
    0x5710 GET_LDST_IDT GetLdstIdt "Get LDST IDT DPID Entries" (tables::EdgeRange) -> (tables::Entries<'a, Pid>);
    0x5711 SET_LDST_IDT SetLdstIdt "Set LDST IDT DPID Entries" (tables::SetIdt<'a>) -> ;
    0x5712 GET_RE_ROUTER GetReRouter "Get Completer ID-Based Re-Router Entries" (tables::EdgeRange) -> (tables::Entries<'a, ReRouterEntry>);
    0x5713 SET_RE_ROUTER SetReRouter "Set Completer ID-Based Re-Router Entries" (tables::SetEntries<'a, ReRouterEntry>) -> ;
    0x5714 GET_LAV GetLav "Get LDST Access Vector" (tables::VectorRange) -> (tables::Vector<'a>);
    0x5715 GET_VCS_LAV GetVcsLav "Get VCS LDST Access Vector" (tables::VcsVectorRange) -> (tables::Vector<'a>);
    0x5716 CONFIGURE_LDST_ACCESS ConfigureLdstAccess "Configure VCS LDST Access" (tables::ConfigureLdstAccess) -> ;
    0x5800 IDENTIFY_GAE IdentifyGae "Identify GAE" (gae::GaeRange) -> (gae::GaeIdentity<'a>);
    0x5801 GET_PID_INTERRUPTS GetPidInterrupts "Get PID Interrupt Vector" (gae::GetInterrupts) -> (tables::Vector<'a>);
    0x5802 GET_PID_ACCESS GetPidAccess "Get PID Access Vectors" (tables::VectorRange) -> (tables::Vector<'a>);
    0x5803 GET_FAST_CAPS GetFastCaps "Get FAST/IDT Capabilities" (gae::GetFastCaps) -> (gae::FastCaps<'a>);
    0x5804 SET_FAST SetFast "Set FAST/IDT Configuration" (gae::SetFast) -> ;
    0x5805 GET_FAST_SEGMENTS GetFastSegments "Get FAST Segment Entries" (tables::EdgeRange) -> (tables::Entries<'a, Option<FastEntry>>);
    0x5806 SET_FAST_SEGMENTS SetFastSegments "Set FAST Segment Entries" (tables::SetEntries<'a, Option<FastEntry>>) -> ;
    0x5807 GET_IDT GetIdt "Get IDT DPID Entries" (tables::EdgeRange) -> (tables::Entries<'a, Pid>);
    0x5808 SET_IDT SetIdt "Set IDT DPID Entries" (tables::SetIdt<'a>) -> ;
    0x5809 PROXY Proxy "Proxy GFD Management Command" (gae::ProxyCommand) -> (gae::ProxyStarted);
    0x580A GET_PROXY_STATUS GetProxyStatus "Get Proxy Thread Status" (gae::ProxyThread) -> (gae::ProxyStatus);
    0x580B CANCEL_PROXY CancelProxy "Cancel Proxy Thread" (gae::ProxyThread) -> (u16);
    0x5900 IDENTIFY_VCS_GAE IdentifyVcsGae "Identify VCS GAE" (gae::VcsGaeRange) -> (gae::GaeIdentity<'a>);
    0x5901 GET_VCS_ACCESS GetVcsAccess "Get VCS PID Access Vectors" (tables::VcsVectorRange) -> (tables::Vector<'a>);
    0x5902 CONFIGURE_ACCESS ConfigureAccess "Configure VCS PID Access" (gae::ConfigureAccess) -> ;
    0x5903 GET_PREFIX GetPrefix "Get VendPrefixL0 State" (u8) -> (gae::PrefixFlags);
    0x5904 SET_PREFIX SetPrefix "Set VendPrefixL0 State" (gae::SetPrefix) -> ;
    0xC510 GET_PORT_TRAFFIC GetPortTraffic "Get Port Traffic" (switch::PortList<'a>) -> (switch::PortsTraffic<'a>);
}

impl Request<'_> {
    /// Writes the whole message and returns its length; `None` as [`Request::emit`].
    pub fn emit_message(&self, tag: u8, out: &mut [u8]) -> Option<usize> {
        Header::request(self.opcode(), tag).emit_with(out, |place| self.emit(place))
    }
}

impl Response<'_> {
    /// Writes the whole message, which says success, and returns its length; `None` as [`Response::emit`].
    pub fn emit_message(&self, tag: u8, out: &mut [u8]) -> Option<usize> {
        let header = Header::request(self.opcode(), tag).response(ReturnCode::Success);
        header.emit_with(out, |place| self.emit(place))
    }
}
