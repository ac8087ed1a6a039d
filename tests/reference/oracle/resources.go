package oracle

import (
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	configv1 "k8s.io/kube-scheduler/config/v1"
)

// The scores count containers without a request as if they requested these amounts.
const (
	defaultCPU    = 100               // in thousandths
	defaultMemory = 200 * 1024 * 1024 // in bytes
)

// amounts are amounts of resources by name. CPU is in thousandths.
type amounts map[corev1.ResourceName]int64

func amountOf(name corev1.ResourceName, q resource.Quantity) int64 {
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

func amountsOf(list corev1.ResourceList) amounts {
	a := amounts{}
	for name, q := range list {
		a[name] = amountOf(name, q)
	}
	return a
}

func (a amounts) add(b amounts) {
	for name, n := range b {
		a[name] += n
	}
}

func (a amounts) raiseTo(b amounts) {
	for name, n := range b {
		if before, ok := a[name]; !ok || n > before {
			a[name] = n
		}
	}
}

// request returns the requests of a container.
type request func(c corev1.Container) amounts

// sumContainers returns what the containers need at the same time: all that run beside each other, or an init container
// with the sidecars before it, whichever is more. usual replaces missing requests.
func sumContainers(pod *corev1.Pod, of request, usual amounts) amounts {
	with := func(c corev1.Container) amounts {
		a := maps.Clone(of(c))
		if a == nil {
			a = amounts{}
		}
		for name, n := range usual {
			if _, ok := a[name]; !ok {
				a[name] = n
			}
		}
		return a
	}
	total, sidecars, start := amounts{}, amounts{}, amounts{}
	for _, c := range pod.Spec.Containers {
		total.add(with(c))
	}
	for _, c := range pod.Spec.InitContainers {
		if isSidecar(c) {
			total.add(with(c))
			sidecars.add(with(c))
			start.raiseTo(sidecars)
			continue
		}
		once := with(c)
		once.add(sidecars)
		start.raiseTo(once)
	}
	total.raiseTo(start)
	return total
}

// isPodLevel reports whether a pod can request a resource as a whole, which replaces the sum of its containers.
func isPodLevel(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || isHugePages(name)
}

func isHugePages(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// podRequests returns the requests of a pod that is to be placed.
func podRequests(pod *corev1.Pod, usual amounts) amounts {
	total := sumContainers(pod, func(c corev1.Container) amounts { return amountsOf(c.Resources.Requests) }, usual)
	if pod.Spec.Resources != nil {
		setPodLevel(total, amountsOf(pod.Spec.Resources.Requests))
	}
	total.add(amountsOf(pod.Spec.Overhead))
	return total
}

// podUsage returns what a pod uses of its node. It is the maximum of its requests, the resources that the kubelet has
// allocated and those in force, because an in-place resize may be under way. A resize that the kubelet has declared
// infeasible does not count.
func podUsage(pod *corev1.Pod, usual amounts) amounts {
	infeasible := isResizeInfeasible(pod)
	requestsOf := func(c corev1.Container) amounts { return amountsOf(c.Resources.Requests) }
	allotted := func(c corev1.Container) amounts {
		if s := containerStatus(pod, c.Name); s != nil && s.AllocatedResources != nil {
			return amountsOf(s.AllocatedResources)
		}
		if infeasible {
			return nil
		}
		return requestsOf(c)
	}
	inForce := func(c corev1.Container) amounts {
		if s := containerStatus(pod, c.Name); s != nil && s.Resources != nil && s.Resources.Requests != nil {
			return amountsOf(s.Resources.Requests)
		}
		return allotted(c)
	}
	total := sumContainers(pod, inForce, usual)
	total.raiseTo(sumContainers(pod, allotted, usual))
	if !infeasible {
		total.raiseTo(sumContainers(pod, requestsOf, usual))
	}
	if pod.Spec.Resources != nil {
		setPodLevel(total, podLevelUsage(pod))
	}
	total.add(amountsOf(pod.Spec.Overhead))
	return total
}

// podLevelUsage returns the same for the requests of the pod as a whole.
func podLevelUsage(pod *corev1.Pod) amounts {
	requests := amountsOf(pod.Spec.Resources.Requests)
	if pod.Status.Resources == nil || len(requests) == 0 {
		return requests
	}
	whole := amountsOf(pod.Status.Resources.Requests)
	whole.raiseTo(amountsOf(pod.Status.AllocatedResources))
	if !isResizeInfeasible(pod) {
		whole.raiseTo(requests)
	}
	return whole
}

func setPodLevel(total, whole amounts) {
	for name, n := range whole {
		if isPodLevel(name) {
			total[name] = n
		}
	}
}

func isResizeInfeasible(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending {
			return c.Reason == corev1.PodReasonInfeasible
		}
	}
	return false
}

func containerStatus(pod *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// usageOn returns what the pods on a node use of it.
func (c *simulation) usageOn(node *corev1.Node) amounts {
	total := amounts{}
	for _, p := range c.podsOn(node) {
		total.add(podUsage(p, nil))
	}
	return total
}

// nodeResourcesFit refuses nodes with too little left of a resource that the pod requests. If the node does not have
// that much in total, removing pods does not help.
func nodeResourcesFit(c *simulation, pod *corev1.Pod, node *corev1.Node) *filterRefusal {
	r := &filterRefusal{}
	has := amountsOf(node.Status.Allocatable)
	if int64(len(c.podsOn(node))+1) > has[corev1.ResourcePods] {
		r.reasons = append(r.reasons, "Too many pods")
	}
	taken, wants := c.usageOn(node), podRequests(pod, nil)
	for _, name := range resourceOrder(wants) {
		if !c.isIgnored(name) && wants[name] > 0 && wants[name] > has[name]-taken[name] &&
			c.providingClass(node, name) == nil {
			r.reasons = append(r.reasons, "Insufficient "+string(name))
			r.unresolvable = r.unresolvable || wants[name] > has[name]
		}
	}
	if len(r.reasons) == 0 {
		return nil
	}
	return r
}

// resourceOrder returns the resources in the order of the reasons: CPU, memory, ephemeral storage and then the others
// by name.
func resourceOrder(a amounts) []corev1.ResourceName {
	first := []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	var others []corev1.ResourceName
	for name := range a {
		if !slices.Contains(first, name) && (strings.Contains(string(name), "/") || isHugePages(name)) {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return append(first, others...)
}

// isIgnored reports whether the configuration makes the filter ignore an extended resource.
func (c *simulation) isIgnored(name corev1.ResourceName) bool {
	if c.Arguments.Fit == nil || !strings.Contains(string(name), "/") {
		return false
	}
	group, _, _ := strings.Cut(string(name), "/")
	return slices.Contains(c.Arguments.Fit.IgnoredResources, string(name)) ||
		slices.Contains(c.Arguments.Fit.IgnoredResourceGroups, group)
}

// scoredResources returns the resources for the score, which are CPU and memory unless the configuration sets others.
// Extended resources and huge pages only count for pods that request them.
func scoredResources(list []configv1.ResourceSpec, wants amounts) []configv1.ResourceSpec {
	if len(list) == 0 {
		list = []configv1.ResourceSpec{{Name: "cpu", Weight: 1}, {Name: "memory", Weight: 1}}
	}
	var ranked []configv1.ResourceSpec
	for _, r := range list {
		name := corev1.ResourceName(r.Name)
		if (strings.Contains(r.Name, "/") || isHugePages(name)) && wants[name] == 0 {
			continue
		}
		if r.Weight == 0 {
			r.Weight = 1
		}
		ranked = append(ranked, r)
	}
	return ranked
}

// fitScore returns the weighted mean of the scores that the configuration's strategy gives to the resources. By
// default, the score of a resource is its free share. Containers without requests of CPU and memory count with the
// usual requests. With RequestedToCapacityRatio, a resource whose score is 0 is left out of the mean.
func fitScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	strategy := &configv1.ScoringStrategy{}
	if c.Arguments.Fit != nil && c.Arguments.Fit.ScoringStrategy != nil {
		strategy = c.Arguments.Fit.ScoringStrategy
	}
	scores := make([]int64, len(nodes))
	wants := podRequests(pod, amounts{corev1.ResourceCPU: defaultCPU, corev1.ResourceMemory: defaultMemory})
	for i, node := range nodes {
		has := amountsOf(node.Status.Allocatable)
		var total, weights int64
		for _, r := range scoredResources(strategy.Resources, wants) {
			name := corev1.ResourceName(r.Name)
			taken := wants[name]
			if class := c.providingClass(node, name); class != nil {
				all, other := c.devices(node, driverOf(class))
				has[name] = all
				taken += other
			} else {
				for _, p := range c.podsOn(node) {
					taken += podUsage(p, defaultRequests(p))[name]
				}
			}
			if has[name] == 0 {
				continue
			}
			var score int64
			switch strategy.Type {
			case configv1.MostAllocated:
				score = min(taken, has[name]) * maxScore / has[name]
			case configv1.RequestedToCapacityRatio:
				if score = interpolate(strategy.RequestedToCapacityRatio.Shape,
					utilization(taken, has[name])); score == 0 {
					continue
				}
			default:
				score = max(has[name]-taken, 0) * maxScore / has[name]
			}
			total += score * r.Weight
			weights += r.Weight
		}
		switch {
		case weights == 0:
		case strategy.Type == configv1.RequestedToCapacityRatio:
			scores[i] = int64(math.Round(float64(total) / float64(weights)))
		default:
			scores[i] = total / weights
		}
	}
	return scores
}

// defaultRequests returns the usual requests for the containers of a pod on a node that have none. If the pod has
// requests as a whole, they apply only to resources that neither the pod nor any container requests.
func defaultRequests(pod *corev1.Pod) amounts {
	usual := amounts{corev1.ResourceCPU: defaultCPU, corev1.ResourceMemory: defaultMemory}
	whole := false
	if pod.Spec.Resources != nil {
		for name := range pod.Spec.Resources.Requests {
			whole = whole || isPodLevel(name)
		}
	}
	if whole {
		for name := range podUsage(pod, nil) {
			delete(usual, name)
		}
	}
	return usual
}

// balancedAllocationScore prefers nodes on which the pod makes the used shares of resources more equal. The resources
// are CPU and memory unless the configuration sets others. Pods that request none of them are not scored.
func balancedAllocationScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	var list []configv1.ResourceSpec
	if c.Arguments.Balanced != nil {
		list = c.Arguments.Balanced.Resources
	}
	wants := podRequests(pod, nil)
	names, asks := []corev1.ResourceName{}, false
	for _, r := range scoredResources(list, wants) {
		names = append(names, corev1.ResourceName(r.Name))
		asks = asks || wants[corev1.ResourceName(r.Name)] != 0
	}
	if !asks {
		return nil
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		has, before, after := amountsOf(node.Status.Allocatable), c.usageOn(node), c.usageOn(node)
		for _, name := range names {
			if class := c.providingClass(node, name); class != nil {
				has[name], before[name] = c.devices(node, driverOf(class))
				after[name] = before[name]
			}
		}
		after.add(wants)
		scores[i] = maxScore/2 + (maxScore/2+balanceScore(names, after, has)-balanceScore(names, before, has))/2
	}
	return scores
}

// balanceScore returns maxScore less the standard deviation of the shares. It is half of maxScore if one of two
// resources is fully used and the other unused.
func balanceScore(names []corev1.ResourceName, taken, has amounts) int64 {
	var shares []float64
	for _, name := range names {
		if has[name] > 0 {
			shares = append(shares, math.Min(float64(taken[name])/float64(has[name]), 1))
		}
	}
	deviation := 0.0
	switch {
	case len(shares) == 2:
		deviation = math.Abs((shares[0] - shares[1]) / 2)
	case len(shares) > 2:
		mean := 0.0
		for _, s := range shares {
			mean += s
		}
		mean /= float64(len(shares))
		for _, s := range shares {
			deviation += (s - mean) * (s - mean)
		}
		deviation = math.Sqrt(deviation / float64(len(shares)))
	}
	return int64((1 - deviation) * maxScore)
}

// imageLocalityScore prefers nodes that have the pod's images. An image counts with its size times the share of nodes
// that have it. The sum counts between 23 MiB for the pod and 1000 MiB for each image.
func imageLocalityScore(c *simulation, pod *corev1.Pod, nodes []*corev1.Node) []int64 {
	const least, most = 23 << 20, 1000 << 20
	var images []string
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		images = append(images, imageName(container.Image))
	}
	for _, v := range pod.Spec.Volumes {
		if v.Image != nil {
			images = append(images, imageName(v.Image.Reference))
		}
	}
	scores := make([]int64, len(nodes))
	for i, node := range nodes {
		var total int64
		for _, image := range images {
			size, ok := imageSize(node, image)
			if !ok {
				continue
			}
			having := 0
			for _, other := range c.Nodes {
				if _, ok := imageSize(other, image); ok {
					having++
				}
			}
			total += int64(float64(size) * (float64(having) / float64(len(c.Nodes))))
		}
		limit := int64(most) * int64(len(images))
		scores[i] = maxScore * (min(max(total, least), limit) - least) / (limit - least)
	}
	return scores
}

// imageName returns an image name with a tag, which is latest if none is given.
func imageName(name string) string {
	if strings.LastIndex(name, ":") <= strings.LastIndex(name, "/") {
		return name + ":latest"
	}
	return name
}

func imageSize(node *corev1.Node, name string) (int64, bool) {
	for _, image := range node.Status.Images {
		if slices.Contains(image.Names, name) {
			return image.SizeBytes, true
		}
	}
	return 0, false
}
