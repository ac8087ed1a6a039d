package upkeep

import (
	"context"
	"fmt"
	"slices"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"clusterctl/daemons/apiserver/write"
)

// danglingInterval is the interval at which the references of flow schemas to priority levels are checked.
const danglingInterval = 2 * time.Second

// MaintainFlowObjects keeps each FlowSchema's Dangling condition up to date, and restores the mandatory objects when
// they are deleted or changed.
func (s *Upkeep) MaintainFlowObjects(ctx context.Context, wanted []runtime.Object) error {
	tick := time.NewTicker(danglingInterval)
	defer tick.Stop()
	var schemas, levels int64
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		nowSchemas, nowLevels := s.config.Cache.Objects().
			Revision(flowSchemasGVR.GroupResource()),
			s.config.Cache.Objects().
				Revision(priorityLevelsGVR.GroupResource())
		if s.IsBootstrapped() && (nowSchemas != schemas || nowLevels != levels) {
			if _, err := s.config.Writes.EnsureEach(ctx, wanted); err == nil {
				schemas, levels = nowSchemas, nowLevels
			} else if ctx.Err() == nil {
				s.config.Log.Warn("restore what shares the server's capacity out", "err", err)
			}
		}
		for _, obj := range s.config.Cache.Objects().List(flowSchemasGVR.GroupResource(), "") {
			schema, ok := obj.(*flowcontrolv1.FlowSchema)
			if !ok || hasDanglingCondition(schema, s.danglingCondition(schema)) {
				continue
			}
			call, cancel := context.WithTimeout(ctx, 10*time.Second)
			if err := s.writeDangling(call, schema.Name); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
				s.config.Log.Debug("note whether a flow schema dangles", "flowschema", schema.Name, "err", err)
			}
			cancel()
		}
	}
}

var (
	flowSchemasGVR    = flowcontrolv1.SchemeGroupVersion.WithResource("flowschemas")
	priorityLevelsGVR = flowcontrolv1.SchemeGroupVersion.WithResource("prioritylevelconfigurations")
)

// danglingCondition returns the Dangling condition that a schema should have.
func (s *Upkeep) danglingCondition(schema *flowcontrolv1.FlowSchema) flowcontrolv1.FlowSchemaCondition {
	level := schema.Spec.PriorityLevelConfiguration.Name
	c := flowcontrolv1.FlowSchemaCondition{
		Type:   flowcontrolv1.FlowSchemaConditionDangling,
		Status: flowcontrolv1.ConditionFalse,
		Reason: "Found",
		Message: fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q and it exists",
			level),
	}
	if _, ok := s.config.Cache.Objects().Get(priorityLevelsGVR.GroupResource(), "", level); !ok {
		c.Status, c.Reason = flowcontrolv1.ConditionTrue, "NotFound"
		c.Message = fmt.Sprintf("This FlowSchema references the PriorityLevelConfiguration object named %q "+
			"but there is no such object", level)
	}
	return c
}

func hasDanglingCondition(schema *flowcontrolv1.FlowSchema, want flowcontrolv1.FlowSchemaCondition) bool {
	return slices.ContainsFunc(schema.Status.Conditions, func(c flowcontrolv1.FlowSchemaCondition) bool {
		return c.Type == want.Type && c.Status == want.Status && c.Message == want.Message
	})
}

func (s *Upkeep) writeDangling(ctx context.Context, name string) error {
	own := write.Own{Resource: flowSchemasGVR, Subresource: "status", Name: name, IsRepeated: true}
	_, err := s.config.Writes.Change(ctx, own, func(live runtime.Object) (runtime.Object, error) {
		if live == nil {
			return nil, apierrors.NewNotFound(flowSchemasGVR.GroupResource(), name)
		}
		schema, ok := live.DeepCopyObject().(*flowcontrolv1.FlowSchema)
		if !ok {
			return live, nil
		}
		want := s.danglingCondition(schema)
		if hasDanglingCondition(schema, want) {
			return schema, nil
		}
		want.LastTransitionTime = metav1.Now()
		schema.Status.Conditions = append(slices.DeleteFunc(schema.Status.Conditions,
			func(c flowcontrolv1.FlowSchemaCondition) bool { return c.Type == want.Type }), want)
		return schema, nil
	})
	return err
}
