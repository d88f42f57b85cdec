// The part of the RPC service `switch_sai_rpc` that QoS tests of switches use, from which thrift-compiler makes the
// package switch_sai_thrift (stubs.py).
//
// TBinaryProtocol over TCP, unframed. An attribute's value is the one field of its struct that is set.
// Units: object ids are opaque; counters are frames or octets, by their ids in sai_headers.py.
// Source: names, field ids and types are the public interface of SAI's Thrift server, without which no foreign
// tester would understand this one; the text is written for weft.

namespace py switch_sai_thrift

typedef i64 sai_thrift_object_id_t
typedef i32 sai_thrift_status_t

struct sai_thrift_ip_t {
  1: string ip4;
  2: string ip6;
}

struct sai_thrift_ip_address_t {
  1: i8 addr_family;
  2: sai_thrift_ip_t addr;
}

struct sai_thrift_ip_prefix_t {
  1: i8 addr_family;
  2: sai_thrift_ip_t addr;
  3: sai_thrift_ip_t mask;
}

struct sai_thrift_fdb_entry_t {
  1: string mac_address;
  2: sai_thrift_object_id_t bv_id;
}

struct sai_thrift_object_list_t {
  1: i32 count;
  2: list<sai_thrift_object_id_t> object_id_list;
}

struct sai_thrift_vlan_list_t {
  1: i32 vlan_count;
  2: list<i16> vlan_list;
}

struct sai_thrift_u32_list_t {
  1: i32 count;
  2: list<i32> u32list;
}

struct sai_thrift_s32_list_t {
  1: i32 count;
  2: list<i32> s32list;
}

// Access lists and neighbours: foreign tests import these types, and no QoS test fills one.
struct sai_thrift_acl_mask_t {
  1: i8 u8;
  2: i8 s8;
  3: i16 u16;
  4: i16 s16;
  5: i32 u32;
  6: i32 s32;
  7: string mac;
  8: string ip4;
  9: string ip6;
}

struct sai_thrift_acl_data_t {
  1: i8 u8;
  2: i8 s8;
  3: i16 u16;
  4: i16 s16;
  5: i32 u32;
  6: i32 s32;
  7: string mac;
  8: string ip4;
  9: string ip6;
  10: sai_thrift_object_id_t oid;
  11: sai_thrift_object_list_t objlist;
}

struct sai_thrift_acl_field_data_t {
  1: bool enable;
  2: sai_thrift_acl_mask_t mask;
  3: sai_thrift_acl_data_t data;
}

struct sai_thrift_neighbor_entry_t {
  1: sai_thrift_object_id_t rif_id;
  2: sai_thrift_ip_address_t ip_address;
}

// Values 19, 22 and 23 (actions of access lists, QoS maps, FDB) are of no use to a QoS test, so they have no type here.
struct sai_thrift_attribute_value_t {
  1: bool booldata;
  2: string chardata;
  3: i8 u8;
  4: i8 s8;
  5: i16 u16;
  6: i16 s16;
  7: i32 u32;
  8: i32 s32;
  9: i64 u64;
  10: i64 s64;
  11: string mac;
  12: sai_thrift_object_id_t oid;
  13: string ip4;
  14: string ip6;
  15: sai_thrift_ip_address_t ipaddr;
  16: sai_thrift_object_list_t objlist;
  17: sai_thrift_vlan_list_t vlanlist;
  18: sai_thrift_acl_field_data_t aclfield;
  20: sai_thrift_u32_list_t u32list;
  21: sai_thrift_s32_list_t s32list;
}

struct sai_thrift_attribute_t {
  1: i32 id;
  2: sai_thrift_attribute_value_t value;
}

struct sai_thrift_attribute_list_t {
  1: list<sai_thrift_attribute_t> attr_list;
  2: i32 attr_count;
}

service switch_sai_rpc {
  // The switch and its ports by the names of its configuration.
  sai_thrift_attribute_list_t sai_thrift_get_switch_attribute();
  sai_thrift_status_t sai_thrift_set_switch_attribute(1: sai_thrift_attribute_t attribute);
  sai_thrift_attribute_t sai_thrift_get_port_list_by_front_port();
  sai_thrift_object_id_t sai_thrift_get_port_id_by_front_port(1: string port_name);

  // A port: its lists of queues and groups, whether it sends, its counters.
  sai_thrift_attribute_list_t sai_thrift_get_port_attribute(1: sai_thrift_object_id_t port_id);
  sai_thrift_status_t sai_thrift_set_port_attribute(
    1: sai_thrift_object_id_t port_id, 2: sai_thrift_attribute_t thrift_attr);
  list<i64> sai_thrift_get_port_stats(
    1: sai_thrift_object_id_t port_id, 2: list<i32> counter_ids, 3: i32 number_of_counters);
  sai_thrift_status_t sai_thrift_clear_port_all_stats(1: sai_thrift_object_id_t port_id);

  // Egress queues and ingress groups.
  list<i64> sai_thrift_get_queue_stats(
    1: sai_thrift_object_id_t queue_id, 2: list<i32> counter_ids, 3: i32 number_of_counters);
  sai_thrift_status_t sai_thrift_clear_queue_stats(
    1: sai_thrift_object_id_t queue_id, 2: list<i32> counter_ids, 3: i32 number_of_counters);
  list<i64> sai_thrift_get_pg_stats(
    1: sai_thrift_object_id_t pg_id, 2: list<i32> counter_ids, 3: i32 number_of_counters);

  // The shared buffer.
  list<i64> sai_thrift_get_buffer_pool_stats(
    1: sai_thrift_object_id_t buffer_pool_id, 2: list<i32> counter_ids);
  sai_thrift_status_t sai_thrift_clear_buffer_pool_stats(
    1: sai_thrift_object_id_t buffer_pool_id, 2: list<i32> counter_ids);

  // Rates by profile; ports of a chassis; the FDB, which no QoS test reads.
  sai_thrift_object_id_t sai_thrift_create_scheduler_profile(1: list<sai_thrift_attribute_t> thrift_attr_list);
  sai_thrift_object_id_t sai_thrift_get_sys_port_obj_id_by_port_id(1: i32 port_id);
  sai_thrift_attribute_list_t sai_thrift_get_system_port_attribute(1: sai_thrift_object_id_t sys_port_id);
  sai_thrift_status_t sai_thrift_create_fdb_entry(
    1: sai_thrift_fdb_entry_t thrift_fdb_entry, 2: list<sai_thrift_attribute_t> thrift_attr_list);
  sai_thrift_status_t sai_thrift_delete_fdb_entry(1: sai_thrift_fdb_entry_t thrift_fdb_entry);
  sai_thrift_status_t sai_thrift_flush_fdb_entries(1: list<sai_thrift_attribute_t> thrift_attr_list);
}
