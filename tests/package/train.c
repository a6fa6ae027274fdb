/* Ten steps and an inference of the package of tests/package/network.py, on arrays from standard input.

   ./train PARAMETERS RESULT THREADS: reads ids and labels, writes losses, the old bias and the scores as they are in
   memory, and the parameters to RESULT. */
#include "net.h"

static void *array(size_t bytes) { return aligned_alloc(64, (bytes + 63) / 64 * 64); }

static int fails(int32_t number) {
    if (number != 0)
        fprintf(stderr, "%s\n", net_message(number));
    return number != 0;
}

int main(int count, char **arguments) {
    int64_t *ids = array(8 * 8), *labels = array(8 * 8);
    float *loss = array(4), *bias = array(10 * 4), *scores = array(8 * 10 * 4);
    net *model = net_open(count > 3 ? atoi(arguments[3]) : 0);
    if (model == NULL || fread(ids, 8, 8, stdin) != 8 || fread(labels, 8, 8, stdin) != 8)
        return 2;
    if (fails(net_load(model, arguments[1])))
        return 3;
    for (int n = 0; n < 10; n++) {
        if (fails(net_step(model, ids, labels, loss, bias)))
            return 4;
        fwrite(loss, 4, 1, stdout);
    }
    if (fails(net_infer(model, ids, scores)) || fails(net_store(model, arguments[2])))
        return 5;
    fwrite(bias, 4, 10, stdout);
    fwrite(scores, 4, 8 * 10, stdout);
    fwrite(net_parameter(model, NET_TABLE), sizeof(float), 4, stdout);
    fails(net_infer(model, ids + 1, scores));
    fails(net_infer(model, NULL, scores));
    ids[3] = 1000;
    fails(net_step(model, ids, labels, loss, bias));
    fails(net_load(model, "/nonexistent"));
    fails(net_load(model, arguments[0]));
    net_close(model);
    return 0;
}
