package main

import "context"

const podsMethod = `- Pod to pod: a benchmark of daemons/network. Two network namespaces are machines with a pair of interfaces for a wire, and each has a pod in
  another one. One lane is as the plugin and the daemon make it, with masquerading and a policy that isolates both pods and lets them talk; another,
  the bare one, has the same pairs of interfaces and routes and no rule; of a third the machines' kernels keep track of connections, as services,
  masquerading and policies need it, and do nothing else. All take turns of a tenth of a second in the same run: one stream of TCP, then requests
  of one byte one after the other. Each turn is compared with that of the other lane in the same round, and the median counts. CPU is that of the
  process, which is both ends, with the kernel's part.
`

var podsMeasures = []measure{
	{
		"PodToPod",
		"stream-%",
		1,
		figure{work: "pod to pod across machines, a stream of TCP, of the bare " +
			"path", unit: "%", mark: 90, isMinimum: true},
	},
	{
		"PodToPod",
		"requests-%",
		1,
		figure{work: "pod to pod across machines, requests, of the bare path", unit: "%", mark: 90, isMinimum: true},
	},
	{
		"PodToPod",
		"tracked-stream-%",
		1,
		figure{work: "a stream of TCP, of a path that tracks connections and does nothing else", unit: "%"},
	},
	{
		"PodToPod",
		"tracked-requests-%",
		1,
		figure{work: "requests, of a path that tracks connections and does nothing else", unit: "%"},
	},
	{"PodToPod", "MB/s", 1, figure{work: "a stream of TCP", unit: "MB/s"}},
	{"PodToPod", "bare-MB/s", 1, figure{work: "a stream of TCP, bare", unit: "MB/s"}},
	{"PodToPod", "requests/s", 1, figure{work: "requests one after the other", unit: "per second"}},
	{"PodToPod", "bare-requests/s", 1, figure{work: "requests one after the other, bare", unit: "per second"}},
	{"PodToPod", "cpu-ms/GB", 1, figure{work: "a stream of TCP", unit: "CPU ms per GB"}},
	{"PodToPod", "bare-cpu-ms/GB", 1, figure{work: "a stream of TCP, bare", unit: "CPU ms per GB"}},
}

func (b *bench) pods(ctx context.Context) error {
	return b.benchmarks(ctx, podsMeasures,
		suite{"daemons/network", []struct{ benchmarks, time string }{{"^BenchmarkPodToPod$", "1x"}}})
}
