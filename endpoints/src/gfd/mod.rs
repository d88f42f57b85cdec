//! G-FAM device: decoders, protection, dynamic capacity and the memory behind them.
//! Shape: plain state; requests in, answers and events out.
//! Units: octets.
//! Source: fabric.md, "GFD (endpoint)"; CXL 3.1 section 7.7.2.
