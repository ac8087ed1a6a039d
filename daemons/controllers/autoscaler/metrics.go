package autoscaler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// Metrics reads a target's load. Each method returns a complete answer or an error: missing samples do not mean that
// there is no load.
type Metrics interface {
	// Resource returns each pod's use of a resource, or that of one container if container is not empty.
	Resource(
		ctx context.Context,
		namespace string,
		selector labels.Selector,
		name corev1.ResourceName,
		container string,
	) (map[string]Sample, error)
	Pods(
		ctx context.Context,
		namespace string,
		selector labels.Selector,
		metric autoscalingv2.MetricIdentifier,
	) (map[string]Sample, error)
	// Object returns a value of an object. path is the object's path in the API: namespaces/n/RESOURCE.GROUP/NAME.
	Object(ctx context.Context, path string, metric autoscalingv2.MetricIdentifier) (int64, error)
	External(ctx context.Context, namespace string, metric autoscalingv2.MetricIdentifier) (int64, error)
}

// metricsClient reads metrics from the API servers that are aggregated behind the cluster's.
type metricsClient struct{ client rest.Interface }

// requestTimeout bounds one request, so that a metrics server that hangs delays nothing else.
const requestTimeout = 10 * time.Second

// podMetricsList and metricValueList hold the fields that are read from answers of metrics.k8s.io,
// custom.metrics.k8s.io and external.metrics.k8s.io.
type podMetricsList struct {
	Items []struct {
		Metadata   metav1.ObjectMeta `json:"metadata"`
		Timestamp  metav1.Time       `json:"timestamp"`
		Window     metav1.Duration   `json:"window"`
		Containers []struct {
			Name  string              `json:"name"`
			Usage corev1.ResourceList `json:"usage"`
		} `json:"containers"`
	} `json:"items"`
}

type metricValueList struct {
	Items []struct {
		DescribedObject corev1.ObjectReference `json:"describedObject"`
		Timestamp       metav1.Time            `json:"timestamp"`
		WindowSeconds   *int64                 `json:"windowSeconds"`
		Value           resource.Quantity      `json:"value"`
	} `json:"items"`
}

// get reads a path of a metrics API into a value. of names the resource in errors.
func (s metricsClient) get(ctx context.Context, into any, of schema.GroupResource, query url.Values,
	parts ...string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	request := s.client.Get().AbsPath(path.Join(append([]string{"/apis"}, parts...)...)).Timeout(requestTimeout)
	for key, values := range query {
		for _, value := range values {
			if value != "" {
				request = request.Param(key, value)
			}
		}
	}
	answer := request.Do(ctx)
	if err := answer.Error(); err != nil {
		return withResource(of, err)
	}
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// withResource adds the requested resource to the message of an error. A Status from the server itself is returned
// unchanged. If no server provides the custom metrics API, the message names that API, because its resources have the
// names of the scaled objects.
func withResource(of schema.GroupResource, err error) error {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		return err
	}
	cause, generic := apierrors.StatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
	switch {
	case !generic:
		return err
	case of.Group == customMetrics && status.ErrStatus.Code == http.StatusNotFound:
		return fmt.Errorf("no custom metrics API (%s) registered", customMetrics)
	}
	return apierrors.NewGenericServerResponse(int(status.ErrStatus.Code), "get", of, "", cause.Message, 0, true)
}

// API groups that metrics are read from.
const (
	resourceMetrics = "metrics.k8s.io"
	customMetrics   = "custom.metrics.k8s.io"
	externalMetrics = "external.metrics.k8s.io"
)

func (s metricsClient) Resource(
	ctx context.Context,
	namespace string,
	selector labels.Selector,
	name corev1.ResourceName,
	container string,
) (map[string]Sample, error) {
	var list podMetricsList
	err := s.get(ctx, &list, schema.GroupResource{Group: resourceMetrics, Resource: "pods"},
		url.Values{"labelSelector": {selector.String()}}, resourceMetrics+"/v1beta1/namespaces", namespace, "pods")
	if err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from resource metrics API: %w", err)
	}
	out := map[string]Sample{}
pods:
	for _, item := range list.Items {
		sample := Sample{At: item.Timestamp.Time, Window: item.Window.Duration}
		found := container == ""
		for _, c := range item.Containers {
			if container != "" && c.Name != container {
				continue
			}
			quantity, ok := c.Usage[name]
			if !ok {
				continue pods // a sample without every container would be too low
			}
			found = true
			sample.Value += quantity.MilliValue()
		}
		if found && len(item.Containers) > 0 {
			out[item.Metadata.Name] = sample
		}
	}
	if len(out) == 0 {
		return nil, errors.New("no metrics returned from resource metrics API")
	}
	return out, nil
}

func (s metricsClient) Pods(
	ctx context.Context,
	namespace string,
	selector labels.Selector,
	metric autoscalingv2.MetricIdentifier,
) (map[string]Sample, error) {
	var list metricValueList
	query := url.Values{
		"labelSelector":       {selector.String()},
		"metricLabelSelector": {metav1.FormatLabelSelector(metric.Selector)},
	}
	if metric.Selector == nil {
		query.Del("metricLabelSelector")
	}
	of := schema.GroupResource{Group: customMetrics, Resource: "pods"}
	if err := s.get(ctx, &list, of, query, customMetrics+"/v1beta2/namespaces", namespace, "pods/*",
		metric.Name); err != nil {
		return nil, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no metrics returned from custom metrics API")
	}
	out := map[string]Sample{}
	for _, item := range list.Items {
		window := time.Minute
		if item.WindowSeconds != nil {
			window = time.Duration(*item.WindowSeconds) * time.Second
		}
		out[item.DescribedObject.Name] = Sample{Value: item.Value.MilliValue(), At: item.Timestamp.Time, Window: window}
	}
	return out, nil
}

func (s metricsClient) Object(ctx context.Context, at string, metric autoscalingv2.MetricIdentifier) (int64, error) {
	var list metricValueList
	query := url.Values{}
	if metric.Selector != nil {
		query.Set("metricLabelSelector", metav1.FormatLabelSelector(metric.Selector))
	}
	of := schema.GroupResource{Group: customMetrics, Resource: metric.Name}
	if err := s.get(ctx, &list, of, query, customMetrics+"/v1beta2", at, metric.Name); err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from custom metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from custom metrics API")
	}
	return list.Items[0].Value.MilliValue(), nil
}

func (s metricsClient) External(ctx context.Context, namespace string,
	metric autoscalingv2.MetricIdentifier) (int64, error) {
	var list metricValueList
	query := url.Values{}
	if metric.Selector != nil {
		query.Set("labelSelector", metav1.FormatLabelSelector(metric.Selector))
	}
	of := schema.GroupResource{Group: externalMetrics, Resource: metric.Name}
	if err := s.get(ctx, &list, of, query, externalMetrics+"/v1beta1/namespaces", namespace, metric.Name); err != nil {
		return 0, fmt.Errorf("unable to fetch metrics from external metrics API: %w", err)
	}
	if len(list.Items) == 0 {
		return 0, errors.New("no metrics returned from external metrics API")
	}
	var sum int64
	for _, item := range list.Items {
		sum += item.Value.MilliValue()
	}
	return sum, nil
}
