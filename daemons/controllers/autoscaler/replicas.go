package autoscaler

import (
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Sample is one pod's use in thousandths of the unit.
type Sample struct {
	Value  int64
	At     time.Time
	Window time.Duration // length of the period before At over which Value is an average
}

// Tolerance holds how far the ratio of use to target may differ from one before the number of replicas changes. It also
// holds how long the CPU use of starting pods is ignored.
type Tolerance struct {
	Down, Up float64
	// for this time after a pod's start, CPU samples from before it became ready are ignored
	Initialization time.Duration
	// a pod that became unready later than this after its start was ready before, so its CPU samples count
	Readiness time.Duration
}

func (t Tolerance) contains(ratio float64) bool { return 1-t.Down <= ratio && ratio <= 1+t.Up }

// podGroups sorts the pods of a target by whether their samples count.
type podGroups struct {
	measured, unready, missing []*corev1.Pod
}

// sortPods sorts pods by whether their samples count. Pods that are ending are left out. CPU samples of starting pods
// do not count.
func sortPods(
	pods []*corev1.Pod,
	samples map[string]Sample,
	resource corev1.ResourceName,
	tolerance Tolerance,
	now time.Time,
) (g podGroups) {
	for _, pod := range pods {
		sample, found := samples[pod.Name]
		switch {
		case pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed:
		case pod.Status.Phase == corev1.PodPending:
			g.unready = append(g.unready, pod)
		case !found:
			g.missing = append(g.missing, pod)
		case resource == corev1.ResourceCPU && tolerance.isStarting(pod, sample, now):
			g.unready = append(g.unready, pod)
		default:
			g.measured = append(g.measured, pod)
		}
	}
	return g
}

func (t Tolerance) isStarting(pod *corev1.Pod, sample Sample, now time.Time) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type != corev1.PodReady || pod.Status.StartTime == nil {
			continue
		}
		changed, unready := c.LastTransitionTime.Time, c.Status == corev1.ConditionFalse
		if pod.Status.StartTime.Add(t.Initialization).After(now) {
			return unready || sample.At.Before(changed.Add(sample.Window))
		}
		return unready && pod.Status.StartTime.Add(t.Readiness).After(changed) // the pod has never been ready
	}
	return true
}

// Evaluation is the result of evaluating a metric.
type Evaluation struct {
	Replicas    int32
	Utilization int32 // percent of the requested amount
	Average     int64 // per pod, in thousandths of the unit
}

// byUtilization computes how many pods are needed so that they use target percent of what they request.
func byUtilization(
	current, target int32,
	pods []*corev1.Pod,
	samples map[string]Sample,
	resource corev1.ResourceName,
	container string,
	tolerance Tolerance,
	now time.Time,
) (Evaluation, error) {
	if len(pods) == 0 {
		return Evaluation{}, errors.New("no pods returned by selector while calculating replica count")
	}
	g := sortPods(pods, samples, resource, tolerance, now)
	if len(g.measured) == 0 {
		return Evaluation{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	requests := map[string]int64{}
	for _, pod := range pods {
		request, err := requestOf(pod, resource, container)
		if err != nil {
			return Evaluation{}, err
		}
		requests[pod.Name] = request
	}
	var used, wanted int64
	for _, pod := range g.measured {
		used, wanted = used+samples[pod.Name].Value, wanted+requests[pod.Name]
	}
	if wanted == 0 {
		return Evaluation{}, errors.New("no metrics returned matched known pods")
	}
	// Whole percents in floating point: 100 times an amount of bytes in thousandths can overflow an int64.
	percent := func() float64 { return math.Trunc(float64(used) * 100 / float64(wanted)) }
	ratio := func() float64 { return percent() / float64(target) }
	u := Evaluation{Utilization: int32(min(percent(), math.MaxInt32)), Average: used / int64(len(g.measured))}
	u.Replicas = g.replicas(current, ratio(), tolerance, func(pod *corev1.Pod, full bool) float64 {
		wanted += requests[pod.Name]
		if full {
			used += int64(float64(requests[pod.Name]) * float64(max(100, target)) / 100)
		}
		return ratio()
	})
	return u, nil
}

// byAverage computes how many pods are needed so that each uses target.
func byAverage(
	current int32,
	target int64,
	pods []*corev1.Pod,
	samples map[string]Sample,
	resource corev1.ResourceName,
	tolerance Tolerance,
	now time.Time,
) (Evaluation, error) {
	if len(pods) == 0 {
		return Evaluation{}, errors.New("no pods returned by selector while calculating replica count")
	}
	g := sortPods(pods, samples, resource, tolerance, now)
	if len(g.measured) == 0 {
		return Evaluation{}, errors.New("did not receive metrics for targeted pods (pods might be unready)")
	}
	var used, n int64
	for _, pod := range g.measured {
		used, n = used+samples[pod.Name].Value, n+1
	}
	ratio := func() float64 { return float64(used/n) / float64(target) }
	u := Evaluation{Average: used / n}
	u.Replicas = g.replicas(current, ratio(), tolerance, func(_ *corev1.Pod, full bool) float64 {
		n++
		if full {
			used += target
		}
		return ratio()
	})
	return u, nil
}

// replicas returns the number of replicas for the ratio of use to target. Pods without a sample are assumed to use the
// target if the ratio is below one, and nothing if it is above. If it is above, starting pods are assumed to use
// nothing too. assume adds one such pod and returns the new ratio.
func (g podGroups) replicas(
	current int32,
	ratio float64,
	tolerance Tolerance,
	assume func(pod *corev1.Pod, full bool) float64,
) int32 {
	startingCount := ratio > 1 && len(g.unready) > 0
	if !startingCount && len(g.missing) == 0 {
		if tolerance.contains(ratio) {
			return current
		}
		return ceil(ratio * float64(len(g.measured)))
	}
	adjusted, n := ratio, len(g.measured)
	if ratio != 1 {
		n += len(g.missing)
		for _, pod := range g.missing {
			adjusted = assume(pod, ratio < 1)
		}
	}
	if startingCount {
		n += len(g.unready)
		for _, pod := range g.unready {
			adjusted = assume(pod, false)
		}
	}
	if tolerance.contains(adjusted) || ratio < 1 && adjusted > 1 || ratio > 1 && adjusted < 1 {
		return current
	}
	replicas := ceil(adjusted * float64(n))
	if adjusted < 1 && replicas > current || adjusted > 1 && replicas < current {
		return current // the measured pods are not the pods that current counts
	}
	return replicas
}

// byTotal computes how many pods are needed to bring one total down to target, based on the number of ready pods.
func byTotal(current int32, target, value int64, pods []*corev1.Pod, tolerance Tolerance) (int32, error) {
	ratio := float64(value) / float64(target)
	if current == 0 {
		return ceil(ratio), nil
	}
	if tolerance.contains(ratio) {
		return current, nil
	}
	if len(pods) == 0 {
		return 0, errors.New(
			"unable to calculate ready pods: no pods returned by selector while calculating replica count")
	}
	ready := 0
	for _, pod := range pods {
		if pod.Status.Phase == corev1.PodRunning && isReady(pod) {
			ready++
		}
	}
	return ceil(ratio * float64(ready)), nil
}

// byShare computes how many pods are needed so that each one's share of a total is target.
func byShare(current int32, target, value int64, tolerance Tolerance) Evaluation {
	u := Evaluation{Replicas: current}
	if current > 0 {
		u.Average = int64(math.Ceil(float64(value) / float64(current)))
	}
	if current == 0 || !tolerance.contains(float64(value)/(float64(target)*float64(current))) {
		u.Replicas = ceil(float64(value) / float64(target))
	}
	return u
}

func ceil(f float64) int32 { return int32(min(math.Ceil(f), math.MaxInt32)) }

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// requestOf returns the amount of a resource that a pod, or one of its containers, requests, in thousandths.
func requestOf(pod *corev1.Pod, resource corev1.ResourceName, container string) (int64, error) {
	if r := pod.Spec.Resources; container == "" && r != nil {
		if q, ok := r.Requests[resource]; ok {
			return q.MilliValue(), nil
		}
	}
	var sum int64
	found := false
	add := func(c *corev1.Container) error {
		if container != "" && c.Name != container {
			return nil
		}
		found = true
		q, ok := c.Resources.Requests[resource]
		if !ok {
			return fmt.Errorf("missing request for %s in container %s of Pod %s", resource, c.Name, pod.Name)
		}
		sum += q.MilliValue()
		return nil
	}
	for i := range pod.Spec.InitContainers {
		if c := &pod.Spec.InitContainers[i]; c.RestartPolicy != nil &&
			*c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			if err := add(c); err != nil {
				return 0, err
			}
		}
	}
	for i := range pod.Spec.Containers {
		if err := add(&pod.Spec.Containers[i]); err != nil {
			return 0, err
		}
	}
	if container != "" && !found {
		return 0, fmt.Errorf("container %s not found in Pod %s", container, pod.Name)
	}
	return sum, nil
}
