package job

import (
	"cmp"
	"slices"
	"sort"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

func isIndexed(job *batchv1.Job) bool {
	return job.Spec.CompletionMode != nil && *job.Spec.CompletionMode == batchv1.IndexedCompletion &&
		job.Spec.Completions != nil
}

// indexOf returns the completion index of a pod. It reports false if the job no longer has that index, since
// completions can be reduced.
func indexOf(job *batchv1.Job, pod *corev1.Pod) (int, bool) {
	i, err := strconv.Atoi(pod.Annotations[batchv1.JobCompletionIndexAnnotation])
	return i, err == nil && i >= 0 && isIndexed(job) && i < int(*job.Spec.Completions)
}

// completedIndexes returns the indexes that have succeeded according to the status.
func completedIndexes(job *batchv1.Job) intervals {
	return parseIndexes(job.Status.CompletedIndexes, int(*job.Spec.Completions))
}

// failedIndexes returns the indexes that have failed according to the status.
func failedIndexes(job *batchv1.Job) intervals {
	if job.Status.FailedIndexes == nil {
		return nil
	}
	return parseIndexes(*job.Status.FailedIndexes, int(*job.Spec.Completions))
}

// interval holds the indexes from first to last, both included.
type interval struct{ first, last int }

// intervals is a set of indexes, as ascending intervals that neither overlap nor touch. A Job can have up to two
// billion indexes, so they are never expanded to a list. Methods do not change their receiver.
type intervals []interval

// parseIndexes returns those indexes of a text such as "1,3-5" that are below limit.
func parseIndexes(text string, limit int) intervals {
	var out intervals
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		if err != nil || first < 0 {
			continue
		}
		last := first
		if ranged {
			if last, err = strconv.Atoi(to); err != nil {
				continue
			}
		}
		if last = min(last, limit-1); first <= last {
			out = append(out, interval{first, last})
		}
	}
	return out.normalize()
}

// normalize sorts and joins intervals in place.
func (s intervals) normalize() intervals {
	if len(s) == 0 {
		return nil
	}
	slices.SortFunc(s, func(a, b interval) int { return cmp.Compare(a.first, b.first) })
	out := s[:1]
	for _, next := range s[1:] {
		if last := &out[len(out)-1]; next.first <= last.last+1 {
			last.last = max(last.last, next.last)
		} else {
			out = append(out, next)
		}
	}
	return out
}

// with returns the set with some indexes added.
func (s intervals) with(indexes []int) intervals {
	out := slices.Clone(s)
	for _, i := range indexes {
		out = append(out, interval{i, i})
	}
	return out.normalize()
}

func (s intervals) union(other intervals) intervals {
	return slices.Concat(s, other).normalize()
}

func (s intervals) has(i int) bool {
	at := sort.Search(len(s), func(k int) bool { return s[k].last >= i })
	return at < len(s) && s[at].first <= i
}

// count returns the number of indexes.
func (s intervals) count() (n int) {
	for _, r := range s {
		n += r.last - r.first + 1
	}
	return n
}

// overlap returns how many indexes two sets share.
func (s intervals) overlap(other intervals) (n int) {
	for i, j := 0, 0; i < len(s) && j < len(other); {
		n += max(0, min(s[i].last, other[j].last)-max(s[i].first, other[j].first)+1)
		if s[i].last < other[j].last {
			i++
		} else {
			j++
		}
	}
	return n
}

// gaps calls yield for the indexes below limit that are not in the set, in ascending order, until yield returns false.
func (s intervals) gaps(limit int, yield func(i int) bool) {
	next := 0
	for _, r := range append(slices.Clip(s), interval{limit, limit}) {
		for i := next; i < min(r.first, limit); i++ {
			if !yield(i) {
				return
			}
		}
		next = r.last + 1
	}
}

// String returns the set as a Job's status has it: "1,3-5". Two neighbours are written as two numbers.
func (s intervals) String() string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(r.first))
		if r.last > r.first {
			b.WriteByte(",-"[min(r.last-r.first-1, 1)])
			b.WriteString(strconv.Itoa(r.last))
		}
	}
	return b.String()
}
