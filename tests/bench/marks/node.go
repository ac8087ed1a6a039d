package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"clusterctl/tests/lab/cluster"
)

// podStarts measures n pods, one after another.
func podStarts(ctx context.Context, c *cluster.Cluster, n int) ([]time.Duration, error) {
	client, image, err := administrator(ctx, c)
	if err != nil {
		return nil, err
	}
	var out []time.Duration
	for i := range n {
		took, err := podStart(ctx, client, fmt.Sprintf("start-%d", i), image)
		if err != nil {
			return nil, err
		}
		out = append(out, took)
	}
	return out, nil
}

// administrator returns a client with the administrator's kubeconfig, and the image of the workload web.
func administrator(ctx context.Context, c *cluster.Cluster) (client kubernetes.Interface, image string, err error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		return nil, "", err
	}
	cfg.Dial, cfg.QPS = c.Lab.Dial, -1
	if client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, "", err
	}
	web, err := client.AppsV1().Deployments("shop").Get(ctx, "web", metav1.GetOptions{})
	if err != nil {
		return nil, "", err
	}
	return client, web.Spec.Template.Spec.Containers[0].Image, nil
}

func podStart(ctx context.Context, client kubernetes.Interface, name, image string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	pods := client.CoreV1().Pods("shop")
	events, err := pods.Watch(ctx,
		metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return 0, err
	}
	defer events.Stop()
	grace := int64(0)
	started := time.Now()
	_, err = pods.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &grace,
			Containers:                    []corev1.Container{{Name: "c", Image: image}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return 0, err
	}
	var took time.Duration
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		switch {
		case !ok:
			return 0, fmt.Errorf("pod %s: unexpected %s", name, e.Type)
		case e.Type == watch.Deleted:
			return took, nil
		case took == 0 && isReady(pod):
			took = time.Since(started)
			// The next pod begins when this one is deleted, so that its measurement does not include this deletion.
			second := int64(1)
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &second}); err != nil {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("pod %s did not get ready and go: %w", name, ctx.Err())
}

func isReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
