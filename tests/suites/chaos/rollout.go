package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"clusterctl/tests/lab/cluster"
	"clusterctl/tests/suites/chaos/check"
	"clusterctl/tests/suites/chaos/fault"
)

const (
	rolloutCount = 50 // number of Deployments, with one replica each
	rolloutTime  = 6 * time.Minute
	killEvery    = 5 * time.Second
	rolloutName  = "rollout" // name of the namespace, and of the label that names the Deployment of a pod
)

// testRollout starts a rollout of all Deployments at once, and kills the leaders of the scheduler and the controllers
// again and again meanwhile. It watches every change of a pod.
func testRollout(ctx context.Context, name string) (err error) {
	c, err := cluster.Open(name)
	if err != nil {
		return err
	}
	all, err := newClient(c, machineNames.Control...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 2*rolloutTime)
	defer cancel()
	web, err := all.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("read the workload, whose image is rolled out: %w", err)
	}
	_, err = all.CoreV1().
		Namespaces().
		Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: rolloutName}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	defer func() {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		err = errors.Join(err, all.CoreV1().Namespaces().Delete(end, rolloutName, metav1.DeleteOptions{}))
	}()
	for i := range rolloutCount {
		if _, err := all.AppsV1().Deployments(rolloutName).Create(ctx,
			rolloutDeployment(i, web.Spec.Template.Spec.Containers[0].Image), metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make deployment %d: %w", i, err)
		}
	}
	if _, err := awaitRollouts(ctx, all, nil); err != nil {
		return fmt.Errorf("the deployments are not there before anything is killed: %w", err)
	}
	findings, watching := watchRollout(ctx, all)
	start := time.Now()
	for i := range rolloutCount {
		patch := []byte(`{"spec":{"template":{"metadata":{"annotations":{"round":"2"}}}}}`)
		if _, err := all.AppsV1().Deployments(rolloutName).Patch(ctx, fmt.Sprintf("d%d", i),
			types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("change deployment %d: %w", i, err)
		}
	}
	kills, err := awaitRollouts(ctx, all, func() error { return killLeaders(ctx, c, all) })
	took := time.Since(start)
	watching()
	found := <-findings
	fmt.Printf("chaos: %d deployments rolled out in %.1f s under %d rounds of kills; %d times more pods than maxSurge "+
		"or fewer than maxUnavailable allow\n", rolloutCount, took.Seconds(), kills, len(found))
	if err != nil {
		found = append(found, fmt.Sprintf("the rollout did not finish: %v", err))
	}
	for _, f := range found {
		fmt.Println("FOUND", f)
	}
	if len(found) > 0 {
		return errFound
	}
	return nil
}

func rolloutDeployment(i int, image string) *appsv1.Deployment {
	labels := map[string]string{rolloutName: fmt.Sprintf("d%d", i)}
	one, surge, none, second := int32(1), intstr.FromInt32(1), intstr.FromInt32(0), int64(1)
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: labels[rolloutName]},
		Spec: appsv1.DeploymentSpec{
			Replicas: &one, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &none}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &second,
				Containers:                    []corev1.Container{{Name: "web", Image: image}},
			}},
		},
	}
}

// awaitRollouts waits until all rollouts are complete, and calls meanwhile every killEvery.
func awaitRollouts(ctx context.Context, api kubernetes.Interface, meanwhile func() error) (rounds int, err error) {
	next := time.Now()
	err = cluster.Eventually(ctx, rolloutTime, func(ctx context.Context) error {
		if meanwhile != nil && time.Now().After(next) {
			if err := meanwhile(); err != nil {
				return err
			}
			rounds++
			next = time.Now().Add(killEvery)
		}
		list, err := api.AppsV1().Deployments(rolloutName).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		done := 0
		for _, d := range list.Items {
			if s := d.Status; s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == 1 && s.Replicas == 1 &&
				s.AvailableReplicas == 1 {
				done++
			}
		}
		if done < rolloutCount {
			return fmt.Errorf("%d of %d deployments are rolled out", done, rolloutCount)
		}
		return nil
	})
	return rounds, err
}

// killLeaders kills the processes that hold the leases of the scheduler and the controllers.
func killLeaders(ctx context.Context, c *cluster.Cluster, api kubernetes.Interface) error {
	for _, unit := range []string{"kube-scheduler", "kube-controller-manager"} {
		lease, err := api.CoordinationV1().Leases("kube-system").Get(ctx, unit, metav1.GetOptions{})
		if err != nil {
			return err
		}
		holder := ""
		if lease.Spec.HolderIdentity != nil {
			holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
		}
		if !slices.Contains(machineNames.Control, holder) {
			continue // there is no leader at the moment
		}
		if err := (fault.Fault{Kind: fault.Kill, Machines: []string{holder}, Unit: unit}).Run(ctx, c.Lab,
			newRepair(c)); err != nil {
			return err
		}
	}
	return nil
}

// watchRollout checks every change of the rollout's pods until the returned function is called.
func watchRollout(ctx context.Context, api kubernetes.Interface) (<-chan []string, context.CancelFunc) {
	ctx, stop := context.WithCancel(ctx)
	out := make(chan []string, 1)
	list, err := api.CoreV1().Pods(rolloutName).List(ctx, metav1.ListOptions{})
	if err != nil {
		out <- []string{"the pods could not be listed: " + err.Error()}
		return out, stop
	}
	rules := check.Rollout{MaxPods: 2, MinReady: 1}
	var found []string
	for i := range list.Items {
		found = append(found, rules.Apply(&list.Items[i], false)...)
	}
	at := list.ResourceVersion
	go func() {
		for ctx.Err() == nil {
			stream, err := api.CoreV1().Pods(rolloutName).Watch(ctx, metav1.ListOptions{ResourceVersion: at})
			if err != nil {
				if apierrors.IsResourceExpired(err) || !pauseBeforeRetry(ctx) {
					break
				}
				continue
			}
			for e := range stream.ResultChan() {
				if p, ok := e.Object.(*corev1.Pod); ok {
					at = p.ResourceVersion
					found = append(found, rules.Apply(p, e.Type == watch.Deleted)...)
				}
			}
		}
		if ctx.Err() == nil {
			found = append(found, "the watch of the pods lost its place")
		}
		out <- found
	}()
	return out, stop
}
