package main

import "context"

const balancerMethod = `- Addresses of load balancers: a benchmark of daemons/network/announce. Three network namespaces are machines on one wire, each with the daemon's
  part that announces; somebody outside sends a packet every 5 ms to the address of a service. Its machine is excluded by a label twice, and then
  cut off and its daemon ended at once. What counts of the cut is the longest time between two answers.
`

var balancerMeasures = []measure{
	{
		"AddressMoves/IPv4",
		"gap-s",
		1,
		figure{
			work: "a load balancer's address after its machine's power cut, IPv4",
			unit: "s without answer",
			mark: 2,
		},
	},
	{
		"AddressMoves/IPv6",
		"gap-s",
		1,
		figure{
			work: "a load balancer's address after its machine's power cut, IPv6",
			unit: "s without answer",
			mark: 2,
		},
	},
	{"AddressMoves/IPv4", "sent", 1, figure{work: "packets through planned moves of the address, IPv4", unit: "sent"}},
	{
		"AddressMoves/IPv4",
		"lost",
		1,
		figure{work: "packets through planned moves of the address, IPv4", unit: "lost", mark: 1},
	},
	{"AddressMoves/IPv6", "sent", 1, figure{work: "packets through planned moves of the address, IPv6", unit: "sent"}},
	{
		"AddressMoves/IPv6",
		"lost",
		1,
		figure{work: "packets through planned moves of the address, IPv6", unit: "lost", mark: 1},
	},
}

func (b *bench) balancer(ctx context.Context) error {
	return b.benchmarks(ctx, balancerMeasures,
		suite{"daemons/network/announce", []struct{ benchmarks, time string }{{"^BenchmarkAddressMoves$", "1x"}}})
}
