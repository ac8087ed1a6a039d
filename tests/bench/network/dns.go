package main

import "context"

const dnsMethod = `- Names: benchmarks of daemons/dns. The server has 10,000 services and answers a mix of questions (addresses, what search paths make of other
  names, 50 endpoints, ports, addresses' names, the world outside) over UDP; 64 clients with eight questions each on their way are another process of the
  same machine, on the same cores. CPU is that of the server's process with the kernel's part.
- Through restarts: a server in a process of its own is ended and started again five times, with its sockets kept as systemd keeps them, under clients
  that ask over UDP and TCP all the while.
`

var dnsMeasures = []measure{
	{
		"OverUDP/64",
		"queries/s",
		1,
		figure{
			work:      "names, clients on the same cores",
			unit:      "queries per second",
			upstream:  "33,000",
			mark:      60000,
			isMinimum: true,
		},
	},
	{"OverUDP/64", "cpu-ns/query", 1e-3, figure{work: "a query, the server's part", unit: "CPU µs"}},
	{"Restarts", "asked", 1, figure{work: "queries through five restarts of the server", unit: "answered"}},
	{"Restarts", "lost", 1, figure{work: "queries through five restarts of the server", unit: "lost", mark: 1}},
}

func (b *bench) dns(ctx context.Context) error {
	return b.benchmarks(
		ctx,
		dnsMeasures,
		suite{
			"daemons/dns",
			[]struct{ benchmarks, time string }{{"^BenchmarkOverUDP$/^64$", "300000x"}, {"^BenchmarkRestarts$", "1x"}},
		},
	)
}
