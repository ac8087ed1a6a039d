package main

import "context"

const policyMethod = `- Policies: the benchmarks of daemons/network and of daemons/controllers/networkpolicy, at 10,000 pods in 100 namespaces and 1,000 policies. A
  machine has 110 of the pods, in half of the namespaces, and of each policy's peers one group is all pods of the cluster. CPU is that of the
  process from what the watch has told to the rules in the kernel, with the kernel's part. A pod elsewhere that is nobody's peer here is not
  heard of: a machine watches its own pods and the groups that its policies name.
- The controller's part of a pod that comes: which groups it is in, and what of their slices is to be written. Nothing is sent in it.
`

var policyMeasures = []measure{
	{
		"OneChangeOfPolicies/a_policy_of_pods_here",
		"cpu-ms/op",
		1,
		figure{work: "a policy of pods of the machine changes", unit: "CPU ms", mark: 5},
	},
	{
		"OneChangeOfPolicies/a_pod_here",
		"cpu-ms/op",
		1,
		figure{work: "a pod of the machine gets other labels", unit: "CPU ms", mark: 5},
	},
	{
		"OneChangeOfPolicies/a_pod_here_comes_or_goes",
		"cpu-ms/op",
		1,
		figure{work: "a pod of the machine comes or goes", unit: "CPU ms", mark: 5},
	},
	{
		"OneChangeOfPolicies/a_pod_elsewhere_that_is_a_peer_here",
		"cpu-ms/op",
		1,
		figure{work: "a pod elsewhere that policies here let in comes or goes", unit: "CPU ms", mark: 5},
	},
	{
		"OneChangeOfPolicies/a_policy_of_pods_elsewhere",
		"cpu-ms/op",
		1,
		figure{work: "a policy changes that concerns no pod of the machine", unit: "CPU ms", mark: .2},
	},
	{"PodEvent/groups-of-namespaces", "ns/op", 1e-6, figure{work: "a pod comes, the controller's part", unit: "ms"}},
	{
		"PodEvent/and-one-of-all-pods",
		"ns/op",
		1e-6,
		figure{work: "the same with a group of all 10,000 pods", unit: "ms"},
	},
	{
		"PodEvent/that-concerns-nobody",
		"ns/op",
		1e-6,
		figure{work: "a pod's status changes, the controller's part", unit: "ms"},
	},
}

func (b *bench) policy(ctx context.Context) error {
	return b.benchmarks(
		ctx,
		policyMeasures,
		suite{"daemons/network", []struct{ benchmarks, time string }{{"^BenchmarkOneChangeOfPolicies$", "200x"}}},
		suite{
			"daemons/controllers/networkpolicy",
			[]struct{ benchmarks, time string }{{"^BenchmarkPodEvent$", "200x"}},
		},
	)
}
