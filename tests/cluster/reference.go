package cluster

import "strconv"

// StartReference starts a further kube-apiserver, on which sessions can be played. It runs without a garbage
// collector, since fairgate has none. Unless conditions are asked for, it also runs without priority and
// fairness, whose controller writes one into every FlowSchema: then only requests change the objects
// of the group, and a session always ends in the same way. The program is a kube-apiserver, "" being the cluster's own;
// gates are of its features.
func (c *Cluster) StartReference(name, program, gates string, conditions bool) (*Target, error) {
	server, err := c.StartApiserver(name, program,
		"--enable-priority-and-fairness="+strconv.FormatBool(conditions), "--enable-garbage-collector=false", "--feature-gates="+gates)
	if err != nil {
		return nil, err
	}
	return NewTarget(server.Name, c.Config(server.Endpoint, c.admin))
}
