package profile

import (
	"strings"
	"testing"
	"time"

	"clusterctl/daemons/scheduler/plugin"
)

const header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"

func TestSettingsAreParsed(t *testing.T) {
	s, err := Parse([]byte(header + `
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
percentageOfNodesToScore: 30
profiles:
- schedulerName: default-scheduler
- schedulerName: packs
  percentageOfNodesToScore: 100
  plugins:
    multiPoint:
      disabled: [{name: NodePorts}]
    score:
      disabled: [{name: ImageLocality}]
      enabled: [{name: NodeResourcesFit, weight: 7}, {name: PodTopologySpread}]
    postFilter:
      disabled: [{name: "*"}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      scoringStrategy: {type: MostAllocated, resources: [{name: cpu, weight: 3}]}
      ignoredResources: [example.com/foo]
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 5, ignorePreferredTermsOfExistingPods: true}
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: rack, whenUnsatisfiable: DoNotSchedule, minDomains: 2, nodeAffinityPolicy: Ignore, nodeTaintsPolicy: Honor}]}
  - name: VolumeBinding
    args: {bindTimeoutSeconds: 60, shape: [{utilization: 0, score: 1}, {utilization: 100, score: 10}]}
  - name: DynamicResources
    args: {filterTimeout: 3s}
  - name: DefaultPreemption
    args: {minCandidateNodesPercentage: 5, minCandidateNodesAbsolute: 7}
`))
	if err != nil {
		t.Fatal(err)
	}
	usual, packs := s.Profile("default-scheduler"), s.Profile("packs")
	if s.FirstBackoff != 2*time.Second || s.MaxBackoff != 20*time.Second || usual.Percent != 30 ||
		packs.Percent != 100 {
		t.Errorf("%+v", s)
	}
	if !hasFilter(usual, "NodePorts") || hasFilter(packs, "NodePorts") || !packs.Preempt.IsDisabled ||
		usual.Preempt.IsDisabled ||
		packs.Preempt.Percent != 5 ||
		packs.Preempt.MinNodes != 7 {
		t.Error("plugins are not disabled as declared")
	}
	weights := map[string]int64{}
	for _, score := range packs.Scores {
		weights[score.Name] = score.Weight
	}
	if _, on := weights["ImageLocality"]; on || weights["NodeResourcesFit"] != 7 || weights["TaintToleration"] != 3 ||
		weights["PodTopologySpread"] != 1 {
		t.Errorf("weights %v", weights)
	}
	a := packs.Args
	rack := plugin.DefaultConstraint{Key: "rack", MaxSkew: 1, MinDomains: 2, Required: true, HonorTaint: true}
	if len(a.DefaultConstraints) != 1 || a.DefaultConstraints[0] != rack || !a.HasConfiguredConstraints ||
		usual.Args.HasConfiguredConstraints {
		t.Errorf("constraints %+v", a.DefaultConstraints)
	}
	if shape := a.VolumeShape; len(shape) != 2 || shape[0] != (plugin.Point{Utilization: 0, Score: 10}) ||
		shape[1] != (plugin.Point{Utilization: 100, Score: 100}) {
		t.Errorf("shape %v", shape)
	}
	if a.Fit.Kind != plugin.MostAllocated || len(a.Fit.Resources) != 1 || a.Fit.Resources[0].Weight != 3 ||
		!a.IgnoredResources["example.com/foo"] ||
		a.HardAffinityWeight != 5 || !a.IgnoreExistingPreferred || packs.BindTimeout != time.Minute ||
		*a.DeviceTimeout != 3*time.Second ||
		usual.Args.DeviceTimeout != nil ||
		len(usual.Args.DefaultConstraints) != 2 {
		t.Errorf("%+v", a)
	}
}

// hasFilter reports whether a profile has a filter plugin.
func hasFilter(p *Profile, filter string) bool {
	for _, f := range p.Filters {
		if f.Name == filter {
			return true
		}
	}
	return false
}

func TestUnsupportedSettingsAreRejected(t *testing.T) {
	profile := func(s string) string { return header + "profiles:\n- schedulerName: a\n" + s }
	for name, c := range map[string]struct{ given, want string }{
		"other kind":    {"apiVersion: v1\nkind: Pod\n", "apiVersion and kind must be"},
		"unknown field": {header + "podMaxBackofSeconds: 1\n", "podMaxBackofSeconds"},
		"extender":      {header + "extenders: [{urlPrefix: http://x}]\n", "extenders are not supported"},
		"parallelism":   {header + "parallelism: 16\n", "parallelism cannot be set"},
		"rates":         {header + "clientConnection: {qps: 50}\n", "content types and rates cannot be set"},
		"profiling":     {header + "enableProfiling: true\n", "use the flag --profiling"},
		"lease's times": {header + "leaderElection: {leaseDuration: 15s}\n", "leaseDuration, renewDeadline and " +
			"retryPeriod cannot be set"},
		"ratio unused": {profile("  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: " +
			"MostAllocated, requestedToCapacityRatio: {shape: [{utilization: 0, score: 0}]}}}}]\n"), "needs the type"},
		"strategy's type": {profile("  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {resources: [{name: cpu, weight: 1}]}}}]\n"), `scoringStrategy.type: "" is none of LeastAllocated`},
		"placement": {profile("  plugins: {placementScore: {disabled: [{name: " +
			"\"*\"}]}}\n"), "placementScore: plugins are turned on and off by"},
		"back-off":       {header + "podInitialBackoffSeconds: 20\n", "must not be less"},
		"twice":          {profile("- schedulerName: a\n"), `"a" is there twice`},
		"unknown plugin": {profile("  plugins: {filter: {enabled: [{name: Foo}]}}\n"), `filter: there is no plugin "Foo"`},
		"no score":       {profile("  plugins: {score: {enabled: [{name: NodePorts}]}}\n"), `score: there is no plugin "NodePorts"`},
		"point": {profile("  plugins: {reserve: {disabled: [{name: " +
			"VolumeBinding}]}}\n"), "reserve: plugins are turned on and off by"},
		"binder off": {profile("  plugins: {multiPoint: {disabled: [{name: " +
			"DefaultBinder}]}}\n"), "DefaultBinder cannot be turned off"},
		"args of nobody": {profile("  pluginConfig: [{name: Foo, args: " +
			"{}}]\n"), "pluginConfig[Foo]: there is no plugin"},
		"args' field": {profile("  pluginConfig: [{name: InterPodAffinity, args: {weight: 1}}]\n"), "weight"},
		"args' kind": {profile("  pluginConfig: [{name: InterPodAffinity, args: {kind: " +
			"NodeAffinityArgs}}]\n"), "args.kind must be InterPodAffinityArgs"},
		"weight too large": {profile("  pluginConfig: [{name: InterPodAffinity, args: {hardPodAffinityWeight: " +
			"101}}]\n"), "from 0 to 100"},
		"shape": {profile("  pluginConfig: [{name: NodeResourcesFit, args: {scoringStrategy: {type: " +
			"RequestedToCapacityRatio}}}]\n"), "must have a point"},
		"system and list": {profile("  pluginConfig: [{name: PodTopologySpread, args: {defaultConstraints: " +
			"[{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}}]\n"), "need defaultingType: List"},
		"selector": {profile("  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, " +
			"defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, labelSelector: " +
			"{}}]}}]\n"), "labelSelector cannot be set"},
		"label keys": {profile("  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, " +
			"defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, matchLabelKeys: " +
			"[v]}]}}]\n"), "matchLabelKeys cannot be set"},
		"constraint twice": {profile("  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}, {maxSkew: 2, topologyKey: a, whenUnsatisfiable: ScheduleAnyway}]}}]\n"), `"a" is there twice`},
		"domains": {profile("  pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, " +
			"defaultConstraints: [{maxSkew: 1, topologyKey: a, whenUnsatisfiable: ScheduleAnyway, minDomains: " +
			"2}]}}]\n"), "minDomains must be greater than 0, and needs DoNotSchedule"},
		"plugin twice": {profile("  plugins: {filter: {enabled: [{name: NodePorts}, {name: NodePorts}]}}\n"), `filter: "NodePorts" is there twice`},
		"pod groups": {profile("  plugins: {podGroupPostFilter: {disabled: [{name: " +
			"\"*\"}]}}\n"), "podGroupPostFilter: plugins are turned on and off by"},
		"no time": {profile("  pluginConfig: [{name: DynamicResources, args: {filterTimeout: " +
			"-1s}}]\n"), "filterTimeout must not be negative"},
		"binding devices": {profile("  pluginConfig: [{name: DynamicResources, args: {bindingTimeout: " +
			"10m}}]\n"), "devices with binding conditions are not allocated"},
		"volumes' shape": {profile("  pluginConfig: [{name: VolumeBinding, args: {shape: [{utilization: 50, score: " +
			"1}, {utilization: 50, score: 2}]}}]\n"), "utilizations must grow"},
	} {
		if _, err := Parse([]byte(c.given)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
