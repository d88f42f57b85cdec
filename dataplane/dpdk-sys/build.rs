//! Finds the system's DPDK, compiles the shim and has bindgen read the headers.
//!
//! libdpdk.pc → include paths → shim archive, `bindings.rs`, a list of libraries.
//!
//! Source: DPDK 22.11 `doc/guides/linux_gsg`; nothing is done without the feature `bindings`.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "bindings")]
    bindings::make();
}

#[cfg(feature = "bindings")]
mod bindings {
    use std::path::PathBuf;

    /// Oldest DPDK whose names are used here.
    const OLDEST: &str = "22.11";
    /// Libraries that are called; drivers are plugins that EAL loads by itself.
    const LIBRARIES: [&str; 4] = ["rte_eal", "rte_ethdev", "rte_mempool", "rte_mbuf"];
    /// What is used of the headers.
    const FUNCTIONS: &str = "rte_eal_init|rte_eal_iova_mode|rte_eal_alarm_set|rte_strerror|rte_dev_probe\
        |rte_dev_remove|rte_dev_dma_(un)?map|rte_dev_bus|rte_bus_name|rte_extmem_(un)?register\
        |rte_eth_dev_(get_port_by_name|info_get|configure|adjust_nb_rx_tx_desc|start|stop|close\
        |set_mtu|get_mtu|socket_id|owner_new|owner_set|owner_unset)|rte_eth_(rx|tx)_queue_setup\
        |rte_eth_promiscuous_enable|rte_eth_link_get_nowait|rte_eth_stats_get|rte_eth_macaddr_get\
        |rte_mempool_(create_empty|set_ops_byname|register_ops|populate_iova|obj_iter|free)\
        |rte_pktmbuf_pool_(init|create)|weft_dpdk_.*";
    const TYPES: &str = "rte_(mbuf|mempool|mempool_ops|mempool_objhdr|pktmbuf_pool_private|eth_conf\
        |eth_dev_info|eth_stats|eth_link|eth_dev_owner|mbuf_ext_shared_info)";
    const VALUES: &str = "RTE_(MEMPOOL_F_NO_IOVA_CONTIG|MEMPOOL_F_NO_SPREAD|MBUF_PORT_INVALID\
        |PKTMBUF_HEADROOM|CACHE_LINE_SIZE)|WEFT_DPDK_.*";

    pub fn make() {
        println!("cargo:rerun-if-changed=shim.h");
        println!("cargo:rerun-if-changed=shim.c");
        let found = pkg_config::Config::new()
            .atleast_version(OLDEST)
            .cargo_metadata(false) // it would link every library of DPDK
            .probe("libdpdk");
        let dpdk = match found {
            Ok(dpdk) => dpdk,
            Err(error) => {
                panic!(
                    "feature dpdk needs DPDK {OLDEST} or later (libdpdk-dev, pkg-config): {error}"
                )
            }
        };
        let mut shim = cc::Build::new();
        shim.file("shim.c").includes(&dpdk.include_paths).opt_level(2).flag("-march=corei7");
        // DPDK's headers are not written for all warnings.
        shim.flag("-include").flag("rte_config.h").warnings(false).compile("weft_dpdk_shim");
        let include = |path: &PathBuf| format!("-I{}", path.display());
        let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
        bindgen::Builder::default()
            .header("shim.h")
            .clang_args(dpdk.include_paths.iter().map(include))
            .clang_args(["-march=corei7", "-include", "rte_config.h"])
            .allowlist_function(FUNCTIONS)
            .allowlist_type(TYPES)
            .allowlist_var(VALUES)
            .opaque_type("rte_device|rte_bus|rte_memzone")
            .derive_default(true)
            .layout_tests(false)
            .generate_comments(false)
            .generate()
            .expect("bindgen reads DPDK's headers")
            .write_to_file(out.join("bindings.rs"))
            .expect("OUT_DIR can be written");
        for path in &dpdk.link_paths {
            println!("cargo:rustc-link-search=native={}", path.display());
        }
        for library in LIBRARIES {
            println!("cargo:rustc-link-lib={library}");
        }
    }
}
