package devicetaint

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"clusterctl/daemons/client/informers"
	"clusterctl/daemons/controllers/loop"
	"clusterctl/kube/kubernetes/fake"
)

func newRule(effect resourcev1.DeviceTaintEffect) *resourcev1.DeviceTaintRule {
	return &resourcev1.DeviceTaintRule{
		ObjectMeta: metav1.ObjectMeta{Name: "r", UID: "r", Generation: 2},
		Spec: resourcev1.DeviceTaintRuleSpec{
			DeviceSelector: &resourcev1.DeviceTaintSelector{
				Driver: ptr.To("x.io"),
			}, Taint: resourcev1.DeviceTaint{Key: "bad", Effect: effect}},
	}
}

func TestRuleConditionReportsEvictions(t *testing.T) {
	const never = " This information will not be updated again. Recreate the DeviceTaintRule to trigger an update."
	for name, c := range map[string]struct {
		effect  resourcev1.DeviceTaintEffect
		reach   ruleImpact
		evicted int
		want    string
	}{
		"nothing to do": {"NoExecute", ruleImpact{published: 1}, 0, "False NotStarted: "},
		"one pod": {"NoExecute", ruleImpact{pods: 1, namespaces: 1}, 0, "True PodsPendingEviction: 1 pod needs " +
			"to be evicted in 1 namespace."},
		"some are gone": {"NoExecute", ruleImpact{pods: 3, namespaces: 2}, 1, "True PodsPendingEviction: 3 pods need " +
			"to be evicted in 2 different namespaces. 1 pod evicted since starting the controller."},
		"all are gone": {"NoExecute", ruleImpact{}, 4, "False Completed: 4 pods evicted since starting the " +
			"controller."},
		"a look, of one": {"None", ruleImpact{1, 1, 1, 1}, 0, "False NoEffect: 1 published device selected. 1 " +
			"allocated device selected. 1 pod would be evicted in 1 namespace if the effect was NoExecute." + never},
		"a look, of many": {"None", ruleImpact{4, 3, 2, 2}, 0, "False NoEffect: 4 published devices selected. 3 " +
			"allocated devices selected. 2 pods would be evicted in 2 different namespaces if the effect was " +
			"NoExecute." + never},
		"for new pods alone": {"NoSchedule", ruleImpact{}, 0, "False OtherEffect: Eviction only happens for the " +
			"NoExecute " +
			"effect."},
	} {
		got := progressCondition(newRule(c.effect), c.reach, c.evicted)
		if text := fmt.Sprintf("%s %s: %s", got.Status, got.Reason, got.Message); text != c.want ||
			got.Type != "EvictionInProgress" ||
			got.ObservedGeneration != 2 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestRuleImpact(t *testing.T) {
	claim := func(driver string, tolerations ...resourcev1.DeviceToleration) *resourcev1.ResourceClaim {
		return &resourcev1.ResourceClaim{
			Status: resourcev1.ResourceClaimStatus{
				Allocation: &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{
					Results: []resourcev1.DeviceRequestAllocationResult{
						{Driver: driver, Pool: "p", Device: "d", Tolerations: tolerations},
					}}},
			},
		}
	}
	tolerated := resourcev1.DeviceToleration{Key: "bad", Operator: resourcev1.DeviceTolerationOpExists}
	later := resourcev1.DeviceToleration{
		Key:               "bad",
		Operator:          resourcev1.DeviceTolerationOpExists,
		TolerationSeconds: ptr.To[int64](60),
	}
	claims := []*resourcev1.ResourceClaim{
		claim("x.io"),
		claim("y.io"),
		claim("x.io", tolerated),
		claim("x.io", later),
		{},
	}
	pools := map[[2]string][]*resourcev1.Device{{"x.io", "p"}: {{Name: "d"}, {Name: "e"}}, {"y.io", "p"}: {{Name: "d"}}}
	pod := func(namespace string, uid types.UID) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: uid}}
	}
	users := map[*resourcev1.ResourceClaim][]*corev1.Pod{
		claims[0]: {pod("n", "1"), pod("n", "2")},
		claims[1]: {pod("n", "3")},
		claims[2]: {pod("n", "4")},
		claims[3]: {pod("n", "2"), pod("m", "5")},
	}
	for _, effect := range []resourcev1.DeviceTaintEffect{"NoExecute", "None"} {
		got := impactOf(newRule(effect), claims, pools,
			func(c *resourcev1.ResourceClaim) []*corev1.Pod { return users[c] })
		if want := (ruleImpact{published: 2, allocated: 3, pods: 3, namespaces: 2}); got != want {
			t.Errorf("%s: %+v, want %+v", effect, got, want)
		}
	}
}

func TestRuleStatusIsUpdatedEveryTenSeconds(t *testing.T) {
	start := time.Unix(1_000_000, 0)
	clock, client := clocktesting.NewFakeClock(start), fake.NewClientset()
	factory := informers.New(client)
	c, ok := New(loop.Context{Client: client, Informers: factory, Log: slog.New(slog.DiscardHandler),
		Events: record.NewFakeRecorder(100), Clock: clock}).(*controller)
	if !ok {
		t.Fatal("it is another controller")
	}
	rules := informers.DeviceTaintRules(factory).Informer().GetIndexer()
	rule := newRule("NoExecute")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.Tracker().Add(rule))
	message := func() string {
		t.Helper()
		must(rules.Add(rule))
		must(c.report(t.Context(), "r"))
		var err error
		rule, err = client.ResourceV1().DeviceTaintRules().Get(t.Context(), "r", metav1.GetOptions{})
		must(err)
		condition := rule.Status.Conditions[0]
		return fmt.Sprintf("%s %s", condition.Reason, condition.LastTransitionTime.Sub(start))
	}
	for _, step := range []struct {
		name string
		do   func()
		want string
	}{
		{"at first", func() {}, "NotStarted 0s"},
		{"nothing has changed", func() { clock.Step(time.Minute) }, "NotStarted 0s"},
		{"a pod was evicted", func() { c.evicted.add("r") }, "Completed 1m0s"},
		{"another, a moment later", func() { c.evicted.add("r"); clock.Step(9 * time.Second) }, "Completed 1m0s"},
		{"and it is told in time", func() { clock.Step(time.Second) }, "Completed 1m10s"},
		{"it is changed", func() { rule = rule.DeepCopy(); rule.Generation, rule.Spec.Taint.Effect = 3, "None" },
			"NoEffect 1m10s"},
		{"which is told once", func() { c.evicted.add("r"); clock.Step(time.Hour) }, "NoEffect 1m10s"},
	} {
		step.do()
		if step.name == "it is changed" {
			must(client.Tracker().Update(resourcev1.SchemeGroupVersion.WithResource("devicetaintrules"), rule, ""))
		}
		if got := message(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
