package gitops

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"clusterctl/daemons/config/gitsource"
)

// conditionStatus returns the status of a condition, or "" if it does not exist.
func conditionStatus(list []metav1.Condition, kind string) metav1.ConditionStatus {
	for _, c := range list {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// setCondition sets a condition. The time changes only with the status.
func setCondition(st *gitsource.Status, generation int64, now time.Time, kind string, status metav1.ConditionStatus,
	reason, message string) {
	c := metav1.Condition{Type: kind, Status: status, Reason: reason, Message: shorten(message),
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second))}
	for i, old := range st.Conditions {
		if old.Type != kind {
			continue
		}
		if old.Status == status {
			c.LastTransitionTime = old.LastTransitionTime
		}
		st.Conditions[i] = c
		return
	}
	st.Conditions = append(st.Conditions, c)
}

func removeCondition(st *gitsource.Status, kind string) {
	st.Conditions = slices.DeleteFunc(st.Conditions, func(c metav1.Condition) bool { return c.Type == kind })
}

// setReady sets the conditions of a source that needs no further work.
func setReady(st *gitsource.Status, generation int64, now time.Time, message string) {
	setCondition(st, generation, now, gitsource.ConditionReady, metav1.ConditionTrue, "Succeeded", message)
	removeCondition(st, gitsource.ConditionReconciling)
	removeCondition(st, gitsource.ConditionStalled)
}

// setProgressing sets the conditions of a source whose objects are being applied or become healthy.
func setProgressing(st *gitsource.Status, generation int64, now time.Time, message string) {
	setCondition(st, generation, now, gitsource.ConditionReady, metav1.ConditionUnknown, "Progressing", message)
	setCondition(st, generation, now, gitsource.ConditionReconciling, metav1.ConditionTrue, "Progressing", message)
	removeCondition(st, gitsource.ConditionStalled)
}

// setFailed sets the conditions of a source that could not be reconciled. A stalled source is not retried before it
// changes.
func setFailed(st *gitsource.Status, generation int64, now time.Time, stalled bool, reason, message string) {
	setCondition(st, generation, now, gitsource.ConditionReady, metav1.ConditionFalse, reason, message)
	if stalled {
		removeCondition(st, gitsource.ConditionReconciling)
		setCondition(st, generation, now, gitsource.ConditionStalled, metav1.ConditionTrue, reason, message)
		return
	}
	removeCondition(st, gitsource.ConditionStalled)
	setCondition(st, generation, now, gitsource.ConditionReconciling, metav1.ConditionTrue, "Retrying", message)
}

// shorten limits a message to maxMessage bytes of valid text.
func shorten(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= maxMessage {
		return text
	}
	const end = "…"
	text = text[:maxMessage-len(end)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return text + end
}

// limitList limits a list in a status to maxListed entries, and says how many are missing.
func limitList(list []string) []string {
	if len(list) <= maxListed {
		for i := range list {
			list[i] = shorten(list[i])
		}
		return list
	}
	shown := limitList(slices.Clone(list[:maxListed-1]))
	return append(shown, fmt.Sprintf("and %d more", len(list)-len(shown)))
}
