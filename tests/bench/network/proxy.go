package main

import "context"

const proxyMethod = `- Proxy: the benchmarks of daemons/proxy, in a network namespace of their own, with services of two endpoints each. CPU is that of the whole
  process with the kernel's part of it, and of the programs that the mode iptables calls. A change is one endpoint that goes or comes back,
  from the services' ports to the rules in the kernel.
- All services: clock time into a kernel that has no rule, and by a proxy that begins anew beside the rules of the former one.
- Memory: anonymous memory of a process that holds 10,000 services and their slices as the watch gives them, with their rules made and in the
  kernel, at rest after a collection. The connections of the watch are not in it.
- First packet and connections: to a service whose name has others before and behind it, over loopback. First packet is the median of 300
  connections one after the other; then two clients open as many as they can for 2 s. In the mode iptables the programs take minutes to write
  40,000 services, so that 10,000 are measured.
`

var proxyMeasures = []measure{
	{
		"OneEndpointChanges/1000",
		"cpu-ms/op",
		1,
		figure{work: "one endpoint changes among 1,000 services, nftables", unit: "CPU ms", upstream: "130", mark: 5},
	},
	{
		"OneEndpointChanges/10000",
		"cpu-ms/op",
		1,
		figure{work: "the same among 10,000", unit: "CPU ms", upstream: "3,400", mark: 5},
	},
	{
		"OneEndpointChanges/40000",
		"cpu-ms/op",
		1,
		figure{work: "the same among 40,000", unit: "CPU ms", upstream: "", mark: 5},
	},
	{
		"EndpointByIPTables/1000",
		"cpu-ms/op",
		1,
		figure{work: "one endpoint changes among 1,000 services, iptables", unit: "CPU ms", upstream: "50 to 130"},
	},
	{
		"AllServices/restart=false/10000",
		"ns/op",
		1e-9,
		figure{work: "all of 10,000 services", unit: "s", upstream: "13 to 29", mark: 1},
	},
	{
		"AllServices/restart=true/10000",
		"ns/op",
		1e-9,
		figure{work: "restart with the rules of 10,000 services present", unit: "s", upstream: "27", mark: 1},
	},
	{
		"Memory",
		"anon-MiB",
		1,
		figure{work: "memory beside 10,000 services", unit: "anonymous MiB", upstream: "277", mark: 30},
	},
	{"Connections/nftables/10", "first-us", 1, figure{work: "first packet, nftables, 10 services", unit: "µs"}},
	{"Connections/nftables/40000", "first-us", 1, figure{work: "first packet, nftables, 40,000 services", unit: "µs"}},
	{"Connections/iptables/10", "first-us", 1, figure{work: "first packet, iptables, 10 services", unit: "µs"}},
	{"Connections/iptables/10000", "first-us", 1, figure{work: "first packet, iptables, 10,000 services", unit: "µs"}},
	{"Connections/userspace/10", "first-us", 1, figure{work: "first packet, userspace, 10 services", unit: "µs"}},
	{
		"Connections/userspace/40000",
		"first-us",
		1,
		figure{work: "first packet, userspace, 40,000 services", unit: "µs"},
	},
	{"Connections/nftables/10", "conn/s", 1, figure{work: "connections, nftables, 10 services", unit: "per second"}},
	{
		"Connections/nftables/40000",
		"conn/s",
		1,
		figure{work: "connections, nftables, 40,000 services", unit: "per second"},
	},
	{"Connections/iptables/10", "conn/s", 1, figure{work: "connections, iptables, 10 services", unit: "per second"}},
	{
		"Connections/iptables/10000",
		"conn/s",
		1,
		figure{work: "connections, iptables, 10,000 services", unit: "per second"},
	},
	{"Connections/userspace/10", "conn/s", 1, figure{work: "connections, userspace, 10 services", unit: "per second"}},
	{
		"Connections/userspace/40000",
		"conn/s",
		1,
		figure{work: "connections, userspace, 40,000 services", unit: "per second"},
	},
}

func (b *bench) proxy(ctx context.Context) error {
	return b.benchmarks(ctx, proxyMeasures, suite{"daemons/proxy", []struct{ benchmarks, time string }{
		{
			"^BenchmarkOneEndpointChanges$",
			"200x",
		}, {"^BenchmarkEndpointByIPTables$/^1000$", "20x"}, {"^BenchmarkAllServices$/./^10000$", "1x"},
		{"^BenchmarkMemory$", "1x"}, {"^BenchmarkConnections$", "1x"},
	}})
}
