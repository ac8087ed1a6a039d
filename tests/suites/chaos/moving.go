package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/suites/chaos/fault"
)

const (
	movingName = "moving"
	movingPods = 6                // number of pods
	shortCut   = 30 * time.Second // shorter than the grace period of a node, 50 s
)

// evictionTiming is how long pods stay on an unreachable node after its grace period, and a longer time for which the
// node is cut off.
type evictionTiming struct {
	tolerationSeconds int64 // seconds; 0: the default that admission sets
	cutDuration       time.Duration
}

var (
	shortTiming   = evictionTiming{tolerationSeconds: 10, cutDuration: 100 * time.Second}
	defaultTiming = evictionTiming{cutDuration: 6 * time.Minute}
)

// testMoving cuts off a node for a short time, in which its pods must stay. Then it cuts off the node until its pods
// have moved. Then it cuts off all nodes, and all pods must stay.
func testMoving(ctx context.Context, name string, t evictionTiming) (err error) {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	all, err := newClient(c, machineNames.Control...)
	if err != nil {
		return err
	}
	web, err := all.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the workload, whose image is used: %w", err)
	}
	_, err = all.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: movingName}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, all.CoreV1().Namespaces().Delete(end, movingName, metav1.DeleteOptions{}))
	}()
	if _, err := all.AppsV1().Deployments(movingName).Create(ctx,
		movingDeployment(web.Spec.Template.Spec.Containers[0].Image, t.tolerationSeconds),
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the pods that are to move: %w", err)
	}
	before, err := awaitPodsInPlace(ctx, all, func(corev1.Pod) bool { return true })
	if err != nil {
		return err
	}
	w := movingTest{cluster: c, api: all, timing: t, node: machineNames.Nodes[len(machineNames.Nodes)-1]}
	if err := w.checkShortCut(ctx, before); err != nil {
		return err
	}
	moved, err := w.checkLongCut(ctx, before)
	if err != nil {
		return err
	}
	return w.checkCutOfAll(ctx, moved)
}

// movingTest is a running testMoving.
type movingTest struct {
	cluster *cluster.Cluster
	api     kubernetes.Interface
	timing  evictionTiming
	node    string // the node that is cut off
}

func (w *movingTest) cut(ctx context.Context, d time.Duration, machines ...string) error {
	return fault.Fault{Kind: fault.Cut, Machines: machines, Duration: d}.Run(ctx, w.cluster.Lab, newRepair(w.cluster))
}

// checkShortCut cuts off the node for less than its grace period. All pods must stay.
func (w *movingTest) checkShortCut(ctx context.Context, before map[string]string) error {
	if err := w.cut(ctx, shortCut, w.node); err != nil {
		return err
	}
	if _, err := awaitPodsInPlace(ctx, w.api,
		func(p corev1.Pod) bool { _, same := before[string(p.UID)]; return same }); err != nil {
		return fmt.Errorf("%s was cut off for %s, and not all pods stayed: %w", w.node, shortCut, err)
	}
	fmt.Printf("%s %s was cut off for %s: nothing moved\n", stamp(), w.node, shortCut)
	return nil
}

// checkLongCut cuts off the node until its pods have moved. It returns the pods afterwards.
func (w *movingTest) checkLongCut(ctx context.Context, before map[string]string) (map[string]string, error) {
	if err := w.cut(ctx, w.timing.cutDuration, w.node); err != nil {
		return nil, err
	}
	moved, err := awaitPodsInPlace(ctx, w.api,
		func(p corev1.Pod) bool { _, old := before[string(p.UID)]; return !old || p.Spec.NodeName != w.node })
	if err != nil {
		return nil, fmt.Errorf("the pods of %s did not move: %w", w.node, err)
	}
	for uid, node := range before {
		if _, there := moved[uid]; !there && node != w.node {
			return nil, fmt.Errorf("pod %s of %s is gone, although %s was cut off", uid, node, w.node)
		}
	}
	err = cluster.Eventually(ctx, settlingTime, func(context.Context) error {
		for uid := range runningContainers(w.cluster.Lab.Machine(w.node)) {
			if node := before[uid]; node == w.node {
				return fmt.Errorf("pod %s still runs on %s, from where it has moved", uid, w.node)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	fmt.Printf("%s %s was cut off for %s: its pods moved, no other did, and what ran there is gone\n", stamp(), w.node,
		w.timing.cutDuration)
	return moved, nil
}

// checkCutOfAll cuts off all nodes. All pods must stay.
func (w *movingTest) checkCutOfAll(ctx context.Context, pods map[string]string) error {
	if err := w.cut(ctx, w.timing.cutDuration, machineNames.Nodes...); err != nil {
		return err
	}
	after, err := awaitPodsInPlace(ctx, w.api,
		func(p corev1.Pod) bool { _, same := pods[string(p.UID)]; return same })
	if err != nil {
		return fmt.Errorf("all nodes were cut off, and not all pods stayed: %w", err)
	}
	fmt.Printf("%s all nodes were cut off for %s: all %d pods stayed\n", stamp(), w.timing.cutDuration, len(after))
	return nil
}

func movingDeployment(image string, stays int64) *appsv1.Deployment {
	labels, count, second, stay := map[string]string{"app": movingName}, int32(movingPods), int64(1), &stays
	var tolerations []corev1.Toleration
	for _, taint := range []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable} {
		if stays == 0 {
			break
		}
		tolerations = append(
			tolerations,
			corev1.Toleration{
				Key:               taint,
				Operator:          corev1.TolerationOpExists,
				Effect:            corev1.TaintEffectNoExecute,
				TolerationSeconds: stay,
			},
		)
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: movingName}, Spec: appsv1.DeploymentSpec{
		Replicas: &count, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			Tolerations: tolerations, TerminationGracePeriodSeconds: &second,
			Containers: []corev1.Container{{Name: "web", Image: image}},
			TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: corev1.LabelHostname,
				WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}},
		}},
	}}
}

// awaitPodsInPlace waits until the expected number of pods is ready, right accepts all of them and none is ending. It
// returns their UIDs and nodes.
func awaitPodsInPlace(ctx context.Context, api kubernetes.Interface,
	right func(corev1.Pod) bool) (map[string]string, error) {
	var found map[string]string
	err := cluster.Eventually(ctx, recoveryTimeout, func(ctx context.Context) error {
		list, err := api.CoreV1().Pods(movingName).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		found = map[string]string{}
		for _, p := range list.Items {
			if !right(p) {
				return fmt.Errorf("pod %s on %s is not one that should be there", p.Name, p.Spec.NodeName)
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue && p.DeletionTimestamp == nil {
					found[string(p.UID)] = p.Spec.NodeName
				}
			}
		}
		if len(found) != movingPods || len(list.Items) != movingPods {
			return fmt.Errorf("%d of %d pods are ready, and there are %d", len(found), movingPods, len(list.Items))
		}
		return nil
	})
	return found, err
}
