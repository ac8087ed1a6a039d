package endpoints

import corev1 "k8s.io/api/core/v1"

// maxAddresses is the maximum number of addresses in one Endpoints object. Each change sends the whole object to all
// its watches.
const maxAddresses = 1000

// truncate cuts subsets to at most maximum addresses in all, and reports whether it removed any. Ready addresses stay
// before those that are not ready, and every subset keeps its share. A subset without addresses is left out, because
// the API refuses it.
func truncate(subsets []corev1.EndpointSubset, maximum int) ([]corev1.EndpointSubset, bool) {
	ready, waiting := 0, 0
	for _, s := range subsets {
		ready += len(s.Addresses)
		waiting += len(s.NotReadyAddresses)
	}
	if ready+waiting <= maximum {
		return subsets, false
	}
	room := proportionalShare{total: ready, capacity: min(maximum, ready), remaining: min(maximum, ready)}
	rest := proportionalShare{total: waiting, capacity: maximum - room.capacity, remaining: maximum - room.capacity}
	var out []corev1.EndpointSubset
	for _, s := range subsets {
		s.Addresses = s.Addresses[:room.take(len(s.Addresses))]
		s.NotReadyAddresses = s.NotReadyAddresses[:rest.take(len(s.NotReadyAddresses))]
		if len(s.Addresses)+len(s.NotReadyAddresses) > 0 {
			out = append(out, s)
		}
	}
	return out, true
}

// proportionalShare divides room among lists that have of entries together, in proportion to the length of each. Parts
// are rounded up, so that the last lists get less.
type proportionalShare struct{ total, capacity, remaining int }

func (s *proportionalShare) take(n int) int {
	if n == 0 {
		return 0
	}
	n = min(n, (n*s.capacity+s.total-1)/s.total, s.remaining)
	s.remaining -= n
	return n
}
